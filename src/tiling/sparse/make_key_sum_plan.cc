#include "tiling/sparse/make_key_sum_plan.h"

#include <algorithm>

#include "core/integer.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// Bytes of sums that one task clears or writes. Such a task takes some microseconds.
constexpr int64_t kSummedBytes = 128 << 10;

// The most tasks that clear sums, and the most that write sums. Task ids have 32 bits.
constexpr int64_t kMaxKeyTasks = int64_t{1} << 20;

}  // namespace

KeySumPlan MakeKeySumPlan(const SparseSequences& sequences, int64_t columns, int64_t units, int workers) {
  KeySumPlan plan{.columns = columns, .units = units, .first_key = {0}, .graph = {}};
  for (const SparseSequence& sequence : sequences.list) plan.first_key.push_back(plan.first_key.back() + sequence.sk);
  const int64_t keys = plan.first_key.back(), row_bytes = columns * static_cast<int64_t>(sizeof(float));
  plan.keys_per_task = std::max({kSummedBytes / row_bytes, CeilDiv(keys, kMaxKeyTasks), int64_t{1}});
  plan.key_tasks = CeilDiv(keys, plan.keys_per_task);
  plan.graph.task_count = static_cast<int32_t>(units + 2 * plan.key_tasks);
  plan.graph.range_begin.assign(static_cast<size_t>(workers) + 1, plan.graph.task_count);
  plan.graph.range_begin[0] = 0;
  plan.graph.shared_claims = true;
  return plan;
}

}  // namespace fa::tiling
