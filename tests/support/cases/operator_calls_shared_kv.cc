#include <memory>
#include <stdexcept>

#include "fa/fa.h"
#include "support/cases/operator_calls.h"

namespace fa::test {
namespace {

// The sizes are large enough for several blocks of keys in each kernel, and small enough for sanitizers.
constexpr int64_t kSharedBatch = 2, kSharedHeads = 4, kSharedRows = 40, kSharedKeys = 90, kSharedSize = 16,
                  kSharedCmp = 48, kSharedSlots = 24;

SharedKvArgs SharedArgs(CallTensors& tensors) {
  SharedKvArgs args;
  args.q = tensors.Input({kSharedBatch, kSharedRows, kSharedHeads, kSharedSize});
  args.ori_kv = tensors.Input({kSharedBatch, kSharedKeys, 1, kSharedSize});
  args.cmp_kv = tensors.Input({kSharedBatch, kSharedCmp, 1, kSharedSize});
  args.cmp_indices = tensors.Lists({kSharedBatch, kSharedRows, 1, kSharedSlots}, kSharedCmp);
  args.sink = tensors.Input({kSharedHeads});
  args.out = tensors.Output(args.q.shape);
  args.lse = tensors.Output({kSharedBatch, 1, kSharedRows, kSharedHeads});
  return args;
}

constexpr SharedKvOptions kSharedOptions = {
    .cmp_ratio = 2, .ori_mask = SparseMask::kBand, .window_left = 31, .window_right = 0};

}  // namespace

OperatorCall SmallSharedKvCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  const SharedKvArgs args = SharedArgs(*tensors);
  return MakeOperatorCall("SharedKv", tensors, args, kSharedOptions, SharedKvAttention, PlanSharedKvAttention);
}

OperatorCall SmallSharedKvBackwardCall(ValueKind kind) {
  auto forward_tensors = std::make_shared<CallTensors>(kind);
  const SharedKvArgs forward = SharedArgs(*forward_tensors);
  const Status status = SharedKvAttention(forward, kSharedOptions);
  if (!status.ok()) throw std::runtime_error(status.message());
  auto tensors = std::make_shared<CallTensors>(kind);
  SharedKvGradArgs args;
  args.q = forward.q;
  args.ori_kv = forward.ori_kv;
  args.cmp_kv = forward.cmp_kv;
  args.cmp_indices = forward.cmp_indices;
  args.sink = forward.sink;
  args.out = forward.out;
  args.lse = forward.lse;
  args.d_out = tensors->Input(forward.out.shape);
  args.dq = tensors->Output(forward.q.shape);
  args.d_ori_kv = tensors->Output(forward.ori_kv.shape);
  args.d_cmp_kv = tensors->Output(forward.cmp_kv.shape);
  args.dsink = tensors->Output(forward.sink.shape);
  args.cmp_l1_norm = tensors->Output({kSharedBatch, kSharedRows, 1, kSharedSlots});
  return MakeOperatorCall("SharedKvBackward", tensors, args, kSharedOptions, SharedKvAttentionGrad,
                          PlanSharedKvAttentionGrad, forward_tensors);
}

}  // namespace fa::test
