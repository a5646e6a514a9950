#include "bind_grad_call.h"

#include "core/run/guarded_call.h"

namespace fa::test {

GradCall::GradCall(const BindCall& forward) : options(forward.options), cu_q(forward.cu_q), cu_kv(forward.cu_kv) {
  args.q = forward.args.q;
  args.k = forward.args.k;
  args.v = forward.args.v;
  args.q_rope = forward.args.q_rope;
  args.k_rope = forward.args.k_rope;
  args.pse = forward.args.pse;
  args.dense_mask = forward.args.dense_mask;
  args.drop_mask = forward.args.drop_mask;
  args.sink = forward.args.sink;
  args.out = forward.args.out;
  args.softmax_max = forward.args.softmax_max;
  args.softmax_sum = forward.args.softmax_sum;
  args.d_out = BindCall::Tensor(args.out.dtype, args.out.shape);
  args.dq = Like(args.q);
  args.dk = Like(args.k);
  args.dv = Like(args.v);
  if (args.q_rope.data != nullptr) args.dq_rope = Like(args.q_rope);
  if (args.k_rope.data != nullptr) args.dk_rope = Like(args.k_rope);
}

GradCall GradCall::WithDPse(const CallShape& shape, const Dims& pse, DType dtype) {
  BindCall forward(shape);
  forward.args.pse = BindCall::Tensor(dtype, pse);
  GradCall call(forward);
  call.args.dpse = Like(call.args.pse);
  return call;
}

GradCall GradCall::WithDSlopes(const Dims& slopes) {
  BindCall forward;
  forward.args.pse = BindCall::Tensor(DType::kF32, slopes);
  forward.options.pse_type = PseType::kSlopesSqrt;
  GradCall call(forward);
  call.args.dslopes = Like(call.args.pse);
  return call;
}

Result<ops::BoundAttentionGrad> GradCall::Bind() const {
  return core::GuardedCall("the plan", [&] { return ops::BindAttentionGrad(WithLengths(), options); });
}

Status GradCall::Run() const {
  const auto bound = Bind();
  return bound.ok() ? ops::CheckGradRunArgs(*bound, WithLengths()) : bound.status();
}

AttentionGradArgs GradCall::WithLengths() const {
  AttentionGradArgs with = args;
  with.cu_q = cu_q;
  with.cu_kv = cu_kv;
  return with;
}

::testing::AssertionResult Refused(const GradCall& call, const std::string& text) {
  return Refused(call.Bind().status(), text);
}

::testing::AssertionResult Runs(const GradCall& call) {
  const Status status = call.Run();
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.message();
}

CallShape PackedShape() {
  return {.layout = Layout::kTND, .sq = 20, .sk = 30, .cu_q = {3, 3, 12, 18}, .cu_kv = {5, 9, 9, 30}};
}

}  // namespace fa::test
