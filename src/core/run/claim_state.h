#ifndef FA_CORE_CLAIM_STATE_H_
#define FA_CORE_CLAIM_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/task_graph.h"

namespace fa::core {

/// Decides which worker runs which task in one run of a graph, as described at Executor. Any number of threads may call
/// it at once. No thread ever waits for another, except for the short lock of earliest_first.
///
/// A task has a counter, which starts at the number of its predecessors plus one for the claim. A worker that claims a
/// task or completes one of its predecessors subtracts one from the counter. The worker that brings the counter to zero
/// runs the task. A completed task may free several successors. The worker runs the first of them next, because its
/// data is in cache, and queues the others. Workers take queued tasks before they claim new ones, because other tasks
/// wait for the queued ones. There is one queue per NUMA node. A worker serves the queues of other nodes last. With
/// TaskGraph::earliest_first there is one queue for all nodes: a heap under a lock.
class ClaimState {
 public:
  static constexpr int32_t kNone = -1;

  /// The tasks that became ready when a task was completed.
  struct Released {
    int32_t next = kNone;  ///< the task that the caller runs now
    int queued = 0;        ///< the number of further tasks, which are now available to all workers
  };

  /// Lays the run state of `graph` out in `memory` (RunStateBytes(graph) bytes, 64-byte aligned). `graph` and `memory`
  /// must outlive the ClaimState.
  ClaimState(const TaskGraph& graph, std::byte* memory);

  /// Returns a task for `worker` to run, or kNone if nothing is left to claim and nothing is queued. Tasks that still
  /// wait are then run by the workers that complete their predecessors.
  [[nodiscard]] int32_t Next(int worker);
  /// Reports that `worker` has run `task`.
  [[nodiscard]] Released Complete(int32_t task, int worker);
  /// Reports that input `arrival` of the graph has arrived. Returns how many tasks became available to all workers.
  [[nodiscard]] int Arrive(int32_t arrival, int worker);
  /// Returns whether some task is queued. A worker that found nothing should then look again.
  [[nodiscard]] bool HasQueued() const;
  [[nodiscard]] bool has_edges() const { return has_edges_; }

 private:
  friend size_t RunStateBytes(const TaskGraph& graph);

  /// The claim positions [lo, hi) of one worker. Both numbers are in one atomic word, so the owner and a thief cannot
  /// both take a position. The owner takes the first position, and a thief takes the back half.
  struct alignas(64) Range {
    std::atomic<uint64_t> positions;
    std::atomic<int32_t> queue;  ///< first queued task of the NUMA node; kept only in the range `leader`
    int32_t leader;              ///< index of the first range on the same NUMA node
  };

  [[nodiscard]] int64_t ClaimPosition(int worker);
  [[nodiscard]] int64_t PopFront(Range& range);
  [[nodiscard]] int64_t Steal(int worker, bool same_node);
  [[nodiscard]] std::span<const int32_t> SuccessorsOf(int32_t number) const;
  void Queue(int32_t task);
  [[nodiscard]] int32_t PopEarliest();
  [[nodiscard]] int32_t PopQueued(int leader);
  [[nodiscard]] int32_t PopQueuedElsewhere(int leader);
  /// Subtracts one from the counter of each of `tasks`, and queues the tasks whose counters reach zero. Returns how
  /// many it has queued.
  /// @param first_released  if not null, gets the first task whose counter reaches zero; this task is not queued
  [[nodiscard]] int Release(std::span<const int32_t> tasks, int worker, int32_t* first_released);
  /// Subtracts one from the counter of the task. Returns whether the counter is now zero.
  [[nodiscard]] bool TakeToken(int32_t task);
  [[nodiscard]] int Leader(int worker) const;

  const TaskGraph& graph_;
  bool has_edges_;
  int range_count_;
  Range* ranges_;
  std::atomic<int32_t>* tokens_ = nullptr;        ///< the counter of each task; null for a graph without edges
  std::atomic<int32_t>* queued_after_ = nullptr;  ///< for each queued task, the next one in its queue
  // The heap is used with TaskGraph::earliest_first. The queue of the first range then holds only the first task of the
  // heap.
  int32_t* heap_ = nullptr;  ///< the heap of queued tasks, in the memory of queued_after_
  int32_t heap_size_ = 0;
  std::atomic<bool> heap_locked_{false};
};

}  // namespace fa::core

#endif  // FA_CORE_CLAIM_STATE_H_
