#ifndef FA_CORE_CLAIM_STATE_H_
#define FA_CORE_CLAIM_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/task_graph.h"

namespace fa::core {

/// Who runs which task of one run of a graph: the claim rule of Executor, without threads. Any number of threads may
/// ask at once; none ever waits for another.
///
/// A task has a counter of its predecessors plus one, the claim token. The worker that brings the counter to zero, by
/// claiming or by completing a predecessor, runs it. A completed task that frees several successors hands the first of
/// its successor list back to be run next (it finds its data in cache) and queues the others; queued tasks go before
/// new claims, because others wait for them. There is one queue per NUMA node; a worker serves the queues of other
/// nodes last. With TaskGraph::earliest_first there is one for all nodes, from which the earliest task is taken: a heap
/// under a lock, for graphs of long tasks.
class ClaimState {
 public:
  static constexpr int32_t kNone = -1;

  /// Outcome of a completed task.
  struct Released {
    int32_t next = kNone;  ///< to be run now, by the caller
    int queued = 0;        ///< how many more became available to all workers
  };

  /// Lays the run state of `graph` out in `memory` (RunStateBytes(graph) bytes, 64-byte aligned). Both must outlive it.
  ClaimState(const TaskGraph& graph, std::byte* memory);

  /// A task for `worker` to run, or kNone when nothing is left to claim and nothing is queued. Tasks that still wait
  /// are then run by the workers that complete their predecessors.
  [[nodiscard]] int32_t Next(int worker);
  /// Reports that `worker` has run `task`.
  [[nodiscard]] Released Complete(int32_t task, int worker);
  /// Reports that input `arrival` of the graph has arrived. Returns how many tasks became available to all workers.
  [[nodiscard]] int Arrive(int32_t arrival, int worker);
  /// Some task is queued: a worker that found nothing should look again.
  [[nodiscard]] bool HasQueued() const;
  [[nodiscard]] bool has_edges() const { return has_edges_; }

 private:
  friend size_t RunStateBytes(const TaskGraph& graph);

  /// Claim positions [lo, hi) in one word, so that the owner's step and a thief's cut exclude each other. A position
  /// leaves a word once and never returns to it unclaimed by a stale comparison: equal words are equal ranges.
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
  /// Takes a token from each of the tasks and queues those whose last it was. Returns how many.
  /// @param first_released  not null: gets the first of them, which is not queued
  [[nodiscard]] int Release(std::span<const int32_t> tasks, int worker, int32_t* first_released);
  /// Takes one token from the task; true when it was the last.
  [[nodiscard]] bool TakeToken(int32_t task);
  [[nodiscard]] int Leader(int worker) const;

  const TaskGraph& graph_;
  bool has_edges_;
  int range_count_;
  Range* ranges_;
  std::atomic<int32_t>* tokens_ = nullptr;        ///< per task; only with edges
  std::atomic<int32_t>* queued_after_ = nullptr;  ///< per task: link of the queue it is in
  // With earliest_first; the first range's queue then holds the first task of the heap.
  int32_t* heap_ = nullptr;  ///< in the place of queued_after_
  int32_t heap_size_ = 0;
  std::atomic<bool> heap_locked_{false};
};

}  // namespace fa::core

#endif  // FA_CORE_CLAIM_STATE_H_
