#ifndef FA_CORE_CLAIM_STATE_H_
#define FA_CORE_CLAIM_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/task_graph.h"

namespace fa::core {

/// Decides which worker runs which task in one run of a graph. This is the claim rule of Executor, without threads. Any
/// number of threads may ask at once, and none ever waits for another.
///
/// A task has a counter, which starts at the number of its predecessors plus one for the claim. A worker that claims a
/// task or completes a predecessor takes one from the counter. The worker that brings the counter to zero runs the
/// task. A completed task may free several successors. The worker runs the first of the successor list next, since its
/// data is in cache, and queues the others. Queued tasks go before new claims, because others wait for them. There is
/// one queue per NUMA node. A worker serves the queues of other nodes last. With TaskGraph::earliest_first all nodes
/// share one queue, from which the earliest task is taken. It is a heap under a lock, which suits graphs of long tasks.
class ClaimState {
 public:
  static constexpr int32_t kNone = -1;

  /// The outcome of a completed task.
  struct Released {
    int32_t next = kNone;  ///< the task that the caller runs now
    int queued = 0;        ///< how many more became available to all workers
  };

  /// Lays the run state of `graph` out in `memory` (RunStateBytes(graph) bytes, 64-byte aligned). `graph` and `memory`
  /// must outlive it.
  ClaimState(const TaskGraph& graph, std::byte* memory);

  /// A task for `worker` to run, or kNone if nothing is left to claim and nothing is queued. After kNone, the workers
  /// that complete the predecessors of waiting tasks run these tasks.
  [[nodiscard]] int32_t Next(int worker);
  /// Reports that `worker` has run `task`.
  [[nodiscard]] Released Complete(int32_t task, int worker);
  /// Reports that input `arrival` of the graph has arrived. Returns how many tasks became available to all workers.
  [[nodiscard]] int Arrive(int32_t arrival, int worker);
  /// Whether some task is queued. A worker that found nothing should then look again.
  [[nodiscard]] bool HasQueued() const;
  [[nodiscard]] bool has_edges() const { return has_edges_; }

 private:
  friend size_t RunStateBytes(const TaskGraph& graph);

  /// The claim positions [lo, hi) in one word, so that the owner's step and a thief's cut exclude each other. A
  /// position that has left a word never comes back to it unclaimed. So a comparison that finds an equal word has found
  /// the same range.
  struct alignas(64) Range {
    std::atomic<uint64_t> positions;
    std::atomic<int32_t> queue;  ///< first queued task of the node; used in the range that leads the node
    int32_t leader;              ///< first range of the same node
  };

  [[nodiscard]] int64_t ClaimPosition(int worker);
  [[nodiscard]] int64_t PopFront(Range& range);
  [[nodiscard]] int64_t Steal(int worker, bool same_node);
  [[nodiscard]] std::span<const int32_t> SuccessorsOf(int32_t number) const;
  void Queue(int32_t task);
  [[nodiscard]] int32_t PopEarliest();
  [[nodiscard]] int32_t PopQueued(int leader);
  [[nodiscard]] int32_t PopQueuedElsewhere(int leader);
  /// Takes one from the counter of each of the tasks. Queues the tasks whose counter is zero then. Returns the number
  /// of queued tasks.
  /// @param first_released  if not null, gets the first task whose counter is zero then; this task is not queued
  [[nodiscard]] int Release(std::span<const int32_t> tasks, int worker, int32_t* first_released);
  /// Takes one from the task's counter. Returns true if the counter is zero then.
  [[nodiscard]] bool TakeToken(int32_t task);
  [[nodiscard]] int Leader(int worker) const;

  const TaskGraph& graph_;
  bool has_edges_;
  int range_count_;
  Range* ranges_;
  std::atomic<int32_t>* tokens_ = nullptr;        ///< the counter of each task; null for a graph without edges
  std::atomic<int32_t>* queued_after_ = nullptr;  ///< per task: link of the queue it is in
  // These two are used with earliest_first. The first range's queue then holds the first task of the heap.
  int32_t* heap_ = nullptr;  ///< uses the memory of queued_after_
  int32_t heap_size_ = 0;
  std::atomic<bool> heap_locked_{false};
};

}  // namespace fa::core

#endif  // FA_CORE_CLAIM_STATE_H_
