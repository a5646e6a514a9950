#ifndef FA_OPS_KEY_SUM_TASKS_H_
#define FA_OPS_KEY_SUM_TASKS_H_

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "core/task_graph.h"
#include "layout/rows_view.h"
#include "ops/token/ordered_commit.h"
#include "ops/token/sparse_sequences.h"
#include "tiling/row_interval.h"
#include "tiling/sparse/key_sum_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// The tasks of a backward in which query tokens add to f32 sums, the gradients of keys. There are tasks that clear the
/// sums, tasks of tokens (units), and tasks that write the sums. Workers claim the tasks from the front of one list.
/// There are no edges between tasks, because edges would take memory per token. Instead, a running task waits for
/// earlier tasks. Before a token adds, all sums must be cleared. Before sums are written, all tokens must have added.
class KeySumTasks {
 public:
  /// Adds the sums to the layout of `workspace`.
  /// @param units  the number of tasks of tokens; those of one sequence add to each key's sum in ascending order
  KeySumTasks(const SparseSequences& sequences, int64_t columns, int64_t units, int workers,
              tiling::WorkspacePlan& workspace);

  [[nodiscard]] const tiling::KeySumPlan& plan() const { return plan_; }
  [[nodiscard]] const core::TaskGraph& graph() const { return plan_.graph; }
  [[nodiscard]] int64_t key_tasks() const { return plan_.key_tasks; }
  [[nodiscard]] int64_t units() const { return plan_.units; }
  [[nodiscard]] std::byte* RunState(std::byte* workspace) const { return workspace + run_state_; }

  /// The tensor to which columns of the sums are written, as rows of keys.
  struct Target {
    layout::MutableRowsView rows = {};
    float multiplier = 1;
    tiling::Interval columns = {};  ///< columns that are written; empty: all columns
    bool second = false;  ///< whether the columns are gradients of keys in the second tensor of keys, not in the first
  };
  static constexpr size_t kMaxTargets = 3;

  /// One run of a graph of tasks that clear, add to and write sums.
  class Run {
   public:
    Run(const KeySumTasks& tasks, const SparseSequences& sequences, const core::kernels::RowKernels& kernels,
        const Target& target, std::byte* workspace)
        : Run(tasks, sequences, kernels, std::span(&target, 1), workspace) {}
    /// Makes a run that writes columns of the sums to at most kMaxTargets tensors.
    Run(const KeySumTasks& tasks, const SparseSequences& sequences, const core::kernels::RowKernels& kernels,
        std::span<const Target> targets, std::byte* workspace);

    /// Runs a task. For the task of unit `unit`, calls run_unit(unit).
    template <typename RunUnit>
    void RunTask(int32_t task, const RunUnit& run_unit) const {
      const int64_t unit = task - tasks_.plan_.key_tasks;
      if (unit < 0) {
        const PhaseArrival arrival(cleared_);
        Clear(task);
      } else if (unit < tasks_.plan_.units) {
        const PhaseArrival arrival(added_);
        run_unit(unit);
      } else {
        // Waiting for the tokens is not enough: tokens that add nothing may finish before all sums are cleared.
        cleared_.Wait();
        added_.Wait();
        Write(unit - tasks_.plan_.units);
      }
    }
    /// Waits until all sums are cleared. Must be called before a unit adds anything.
    void WaitUntilCleared() const { cleared_.Wait(); }
    [[nodiscard]] const OrderedCommit& commit() const { return commit_; }
    /// Returns the sum of a sequence's key. The sum of the next key follows it in memory.
    [[nodiscard]] float* Row(int64_t sequence, int64_t key) const {
      assert(key >= 0 && tasks_.plan_.first_key[static_cast<size_t>(sequence)] + key < tasks_.plan_.first_key.back());
      return sums_ + (tasks_.plan_.first_key[static_cast<size_t>(sequence)] + key) * tasks_.plan_.columns;
    }

   private:
    void Clear(int64_t task) const;
    void Write(int64_t task) const;

    const KeySumTasks& tasks_;
    const SparseSequences& sequences_;
    const core::kernels::RowKernels& kernels_;
    std::array<Target, kMaxTargets> targets_;
    size_t target_count_;
    float* sums_;
    PhaseGate cleared_, added_;
    OrderedCommit commit_;
  };

 private:
  tiling::KeySumPlan plan_;
  size_t run_state_ = 0, sums_ = 0, gates_ = 0, commit_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_KEY_SUM_TASKS_H_
