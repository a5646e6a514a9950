#include "ops/token/key_sum_tasks.h"

#include <algorithm>
#include <cassert>

#include "core/executor.h"
#include "core/integer.h"

namespace fa::ops {
namespace {

using core::CeilDiv;

// Bytes of sums that a task clears or writes, which takes some microseconds.
constexpr int64_t kTaskBytes = 128 << 10;

// Task ids are 32-bit.
constexpr int64_t kMaxKeyTasks = int64_t{1} << 20;

int64_t* ZeroWord(std::byte* memory) {
  auto* word = reinterpret_cast<int64_t*>(memory);
  *word = 0;
  return word;
}

}  // namespace

KeySumTasks::KeySumTasks(const SparseSequences& sequences, int64_t columns, int64_t units, int workers,
                         tiling::WorkspacePlan& workspace)
    : columns_(columns), units_(units), first_key_{0} {
  for (const SparseSequence& sequence : sequences.list) first_key_.push_back(first_key_.back() + sequence.sk);
  const int64_t keys = first_key_.back(), row_bytes = columns * static_cast<int64_t>(sizeof(float));
  keys_per_task_ = std::max({kTaskBytes / row_bytes, CeilDiv(keys, kMaxKeyTasks), int64_t{1}});
  key_tasks_ = CeilDiv(keys, keys_per_task_);
  graph_.task_count = static_cast<int32_t>(units + 2 * key_tasks_);
  graph_.range_begin.assign(static_cast<size_t>(workers) + 1, graph_.task_count);
  graph_.range_begin[0] = 0;
  graph_.shared_claims = true;
  run_state_ = workspace.Book("run state", core::RunStateBytes(graph_));
  sums_ = workspace.Book("sums of the keys' gradients", static_cast<size_t>(row_bytes), keys);
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
      cleared_(ZeroWord(workspace + tasks.gates_), tasks.key_tasks_),
      added_(ZeroWord(workspace + tasks.gates_ + sizeof(int64_t)), tasks.units_),
      commit_(workspace + tasks.commit_, tasks.units_, std::ssize(sequences.list)) {
  assert(targets.size() <= kMaxTargets);
  std::copy(targets.begin(), targets.end(), targets_.begin());
}

void KeySumTasks::Run::Clear(int64_t task) const {
  const int64_t begin = task * tasks_.keys_per_task_;
  const int64_t end = std::min(begin + tasks_.keys_per_task_, tasks_.first_key_.back());
  std::fill(sums_ + begin * tasks_.columns_, sums_ + end * tasks_.columns_, 0.0F);
}

void KeySumTasks::Run::Write(int64_t task) const {
  const std::vector<int64_t>& first_key = tasks_.first_key_;
  int64_t key = task * tasks_.keys_per_task_;
  const int64_t end = std::min(key + tasks_.keys_per_task_, first_key.back());
  while (key < end) {
    const auto next = std::upper_bound(first_key.begin(), first_key.end(), key);
    const int64_t sequence = next - first_key.begin() - 1;
    const int64_t count = std::min(end, *next) - key;
    const int64_t row = sequences_.list[static_cast<size_t>(sequence)].k_offset + key - *(next - 1);
    for (size_t i = 0; i < target_count_; ++i) {
      const Target& target = targets_[i];
      const int64_t columns = target.columns.empty() ? tasks_.columns_ : target.columns.size();
      auto* to = static_cast<std::byte*>(target.data) +
                 target.rows.Offset(sequence, 0, row) * static_cast<int64_t>(SizeOf(target.rows.dtype));
      kernels_.narrow(sums_ + key * tasks_.columns_ + target.columns.begin, tasks_.columns_, count, columns,
                      target.multiplier, {to, target.rows.dtype, target.rows.row});
    }
    key += count;
  }
}

}  // namespace fa::ops
