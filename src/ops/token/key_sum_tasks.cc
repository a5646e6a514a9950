#include "ops/token/key_sum_tasks.h"

#include <algorithm>
#include <cassert>

#include "core/run/executor.h"
#include "ops/tile/key_rows.h"
#include "tiling/sparse/make_key_sum_plan.h"

namespace fa::ops {
namespace {

int64_t* ZeroWord(std::byte* memory) {
  auto* word = reinterpret_cast<int64_t*>(memory);
  *word = 0;
  return word;
}

}  // namespace

KeySumTasks::KeySumTasks(const SparseSequences& sequences, int64_t columns, int64_t units, int workers,
                         tiling::WorkspacePlan& workspace)
    : plan_(tiling::MakeKeySumPlan(sequences, columns, units, workers)) {
  run_state_ = workspace.Book("run state", core::RunStateBytes(plan_.graph));
  sums_ = workspace.Book("sums of the keys' gradients", static_cast<size_t>(columns) * sizeof(float),
                         plan_.first_key.back());
  gates_ = workspace.Book("gates of the sums", 2 * sizeof(int64_t));
  commit_ = workspace.Book("progress of tokens", OrderedCommit::Bytes(units, std::ssize(sequences.list)));
}

KeySumTasks::Run::Run(const KeySumTasks& tasks, const SparseSequences& sequences,
                      const core::kernels::RowKernels& kernels, std::span<const Target> targets, std::byte* workspace)
    : tasks_(tasks),
      sequences_(sequences),
      kernels_(kernels),
      targets_{},
      target_count_(targets.size()),
      sums_(reinterpret_cast<float*>(workspace + tasks.sums_)),
      cleared_(ZeroWord(workspace + tasks.gates_), tasks.plan_.key_tasks),
      added_(ZeroWord(workspace + tasks.gates_ + sizeof(int64_t)), tasks.plan_.units),
      commit_(workspace + tasks.commit_, tasks.plan_.units, std::ssize(sequences.list)) {
  assert(targets.size() <= kMaxTargets);
  std::copy(targets.begin(), targets.end(), targets_.begin());
}

void KeySumTasks::Run::Clear(int64_t task) const {
  const int64_t begin = task * tasks_.plan_.keys_per_task;
  const int64_t end = std::min(begin + tasks_.plan_.keys_per_task, tasks_.plan_.first_key.back());
  std::fill(sums_ + begin * tasks_.plan_.columns, sums_ + end * tasks_.plan_.columns, 0.0F);
}

void KeySumTasks::Run::Write(int64_t task) const {
  const std::vector<int64_t>& first_key = tasks_.plan_.first_key;
  int64_t key = task * tasks_.plan_.keys_per_task;
  const int64_t end = std::min(key + tasks_.plan_.keys_per_task, first_key.back());
  while (key < end) {
    const auto next = std::upper_bound(first_key.begin(), first_key.end(), key);
    const int64_t sequence = next - first_key.begin() - 1;
    const SparseSequence& of = sequences_.list[static_cast<size_t>(sequence)];
    const int64_t number = key - *(next - 1);
    const bool second = number >= of.first();
    const int64_t count = std::min(end, second ? *next : *(next - 1) + of.first()) - key;
    const int64_t row = second ? of.second_offset + number - of.first() : of.k_offset + number;
    for (size_t i = 0; i < target_count_; ++i) {
      const Target& target = targets_[i];
      if (target.second != second) continue;
      const int64_t columns = target.columns.empty() ? tasks_.plan_.columns : target.columns.size();
      kernels_.narrow(sums_ + key * tasks_.plan_.columns + target.columns.begin, tasks_.plan_.columns, count, columns,
                      target.multiplier, TargetAt(target.rows, sequence, 0, row));
    }
    key += count;
  }
}

}  // namespace fa::ops
