#include "ops/bind/bind_call.h"

#include <utility>

#include "core/run/guarded_call.h"

namespace fa::test {
namespace {

Dims ShapeOf(Layout layout, int64_t batch, int64_t rows, int64_t heads, int64_t head_size) {
  switch (layout) {
    case Layout::kBSH: return {batch, rows, heads * head_size};
    case Layout::kSBH: return {rows, batch, heads * head_size};
    case Layout::kBSND: return {batch, rows, heads, head_size};
    case Layout::kTND: return {rows, heads, head_size};
    default: break;
  }
  return {batch, heads, rows, head_size};
}

}  // namespace

void* BindCall::Somewhere() {
  static uintptr_t next = 0;
  next += uintptr_t{1} << 40;
  return reinterpret_cast<void*>(next);
}

TensorView BindCall::Tensor(DType dtype, Dims shape, Dims stride) { return {Somewhere(), dtype, shape, stride}; }

MutableTensorView BindCall::Output(DType dtype, Dims shape, Dims stride) { return {Somewhere(), dtype, shape, stride}; }

BindCall::BindCall(const CallShape& s) : cu_q(s.cu_q), cu_kv(s.cu_kv) {
  const bool fused = s.layout == Layout::kBSH || s.layout == Layout::kSBH;
  const Layout out_layout = s.layout == Layout::kBNSD_BSND ? Layout::kBSND : s.layout;
  const Dims stats = s.layout == Layout::kTND ? Dims{s.sq, s.heads} : Dims{s.batch, s.heads, s.sq};
  args.q = Tensor(s.dtype, ShapeOf(s.layout, s.batch, s.sq, s.heads, s.d));
  args.k = Tensor(s.dtype, ShapeOf(s.layout, s.batch, s.sk, s.heads_kv, s.d));
  args.v = Tensor(s.dtype, ShapeOf(s.layout, s.batch, s.sk, s.heads_kv, s.dv));
  args.out = Output(s.dtype, ShapeOf(out_layout, s.batch, s.sq, s.heads, s.dv));
  args.softmax_max = Output(DType::kF32, stats);
  args.softmax_sum = Output(DType::kF32, stats);
  options.layout = s.layout;
  options.heads = fused ? s.heads : 0;
}

void BindCall::SetSparseMode(int64_t mode, int64_t pre, int64_t next, std::vector<int64_t> prefix) {
  Result<Mask> mask = Mask::FromSparseMode(mode, pre, next, std::move(prefix), args.dense_mask.data != nullptr);
  sparse_mode_status = mask.status();
  if (mask.ok()) options.mask = *mask;
}

Result<ops::BoundAttention> BindCall::Bind() const {
  if (!sparse_mode_status.ok()) return sparse_mode_status;
  AttentionArgs bound_args = args;
  bound_args.cu_q = cu_q;
  bound_args.cu_kv = cu_kv;
  return core::GuardedCall("the plan", [&] { return ops::BindAttention(bound_args, options); });
}

::testing::AssertionResult Refused(const Status& status, const std::string& text) {
  if (status.ok()) return ::testing::AssertionFailure() << "accepted, want a refusal with: " << text;
  if (status.code() != StatusCode::kInvalidArgument || status.message().find(text) == std::string::npos) {
    return ::testing::AssertionFailure() << "got: " << status.message() << "\nwant: " << text;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Refused(const BindCall& call, const std::string& text) {
  return Refused(call.Bind().status(), text);
}

::testing::AssertionResult Binds(const BindCall& call) {
  const auto bound = call.Bind();
  if (bound.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << bound.status().message();
}

}  // namespace fa::test
