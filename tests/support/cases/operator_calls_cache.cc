// Makes small calls of the operators that merge by lse, and of those that scatter or gather rows of caches.
#include <array>
#include <span>

#include "fa/operators.h"
#include "support/cases/operator_calls.h"

namespace fa::test {
namespace {

constexpr int64_t kParts = 3, kMovedRows = 600, kCacheHeads = 4, kCacheSize = 64;
constexpr int64_t kPages = 40, kPageRows = 16;  // the cache has 640 rows, more than kMovedRows

}  // namespace

OperatorCall SmallMergeLseCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  struct Lists {
    std::array<TensorView, kParts> lse, local_out;
  };
  const auto lists = std::make_shared<Lists>();
  for (TensorView& lse : lists->lse) lse = tensors->Input({kMovedRows});
  for (TensorView& local_out : lists->local_out) local_out = tensors->Input({kMovedRows, kCacheSize});
  MergeByLseArgs args;
  args.lse = lists->lse;
  args.local_out = lists->local_out;
  args.out = tensors->Output({kMovedRows, kCacheSize});
  args.lse_out = tensors->Output({kMovedRows});
  return MakeOperatorCall("MergeLse", tensors, args, MergeByLseOptions(), MergeByLse, PlanMergeByLse, lists);
}

OperatorCall SmallScatterCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  ScatterRowsArgs args;
  args.key = tensors->Input({kMovedRows, kCacheHeads, kCacheSize});
  args.value = tensors->Constant({kMovedRows, kCacheHeads, kCacheSize}, 3);
  args.slot_mapping = tensors->Lists({kMovedRows}, kMovedRows);
  args.key_cache = tensors->Output({kPages, kPageRows, kCacheHeads, kCacheSize});
  args.value_cache = tensors->Output({kPages, kPageRows, kCacheHeads, kCacheSize});
  return MakeOperatorCall("Scatter", tensors, args, ScatterRowsOptions(), ScatterRows, PlanScatterRows);
}

OperatorCall SmallGatherCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  GatherRowsArgs args;
  args.key_cache = tensors->Input({kPages, kPageRows, kCacheHeads, kCacheSize});
  args.value_cache = tensors->Constant({kPages, kPageRows, kCacheHeads, kCacheSize}, 3);
  args.block_table = tensors->Lists({1, kPages}, kPages);
  args.seq_lens = tensors->Lists({2}, 2 * kMovedRows);  // one prefix sum list with the values 0 and kMovedRows
  args.key = tensors->Output({kMovedRows, kCacheHeads, kCacheSize});
  args.value = tensors->Output({kMovedRows, kCacheHeads, kCacheSize});
  return MakeOperatorCall("Gather", tensors, args, GatherRowsOptions{.cumulative = true}, GatherRows, PlanGatherRows);
}

}  // namespace fa::test
