// Makes a small call of fused inference.
#include <array>
#include <span>

#include "fa/infer_attention.h"
#include "support/cases/operator_calls.h"

namespace fa::test {

OperatorCall SmallInferCall(ValueKind kind) {
  constexpr int64_t kRows = 23, kHeads = 4, kSize = 16, kPages = 40, kPageRows = 16;
  auto tensors = std::make_shared<CallTensors>(kind);
  struct Lists {
    TensorView k, v;
    std::array<int64_t, 2> cu_q{20, kRows}, lengths_kv{100, 600};
  };
  const auto lists = std::make_shared<Lists>();
  // Pages are NZ: [pages, Nkv, D / D0, page size, D0].
  lists->k = tensors->Input({kPages, kHeads / 2, kSize / 8, kPageRows, 8});
  lists->v = tensors->Input({kPages, kHeads / 2, kSize / 8, kPageRows, 8});
  InferAttentionArgs args;
  args.q = tensors->Input({kRows, kHeads, kSize});
  args.k = std::span<const TensorView>(&lists->k, 1);
  args.v = std::span<const TensorView>(&lists->v, 1);
  args.cu_q = lists->cu_q;
  args.lengths_kv = lists->lengths_kv;
  args.block_table = tensors->Lists({2, kPages}, kPages);
  args.out = tensors->Output({kRows, kHeads, kSize});
  args.lse = tensors->Output({kRows, kHeads});
  const InferAttentionOptions options{.layout = Layout::kTND, .scale = 3.0f, .sparse_mode = 3};
  return MakeOperatorCall("Infer", tensors, args, options, InferAttention, PlanInferAttention, lists);
}

}  // namespace fa::test
