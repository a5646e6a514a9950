// The operator behind scaled_dot_product_attention on CPUs, and its backward. The results have the sizes and strides
// that PyTorch's Meta kernels promise.
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstring>
#include <tuple>

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "tensors.h"

namespace fa::torch_kernels {
namespace {

using ::torch::stable::zero_;

/// Returns whether fa computes a call with queries of this type and this head size.
bool IsServed(const Tensor& query) {
  constexpr int64_t kLargestHead = 1024;
  return torch_kernels::IsServed(query.scalar_type()) &&
         (query.dim() == 0 || query.size(query.dim() - 1) <= kLargestHead);
}

/// Returns whether the operator has nothing to compute.
bool IsEmpty(const Tensor& query, const Tensor& key) { return query.numel() == 0 || key.numel() == 0; }

void CheckDense(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, double dropout_p,
                const OptionalTensor& attn_mask) {
  CheckNoDropout(op, dropout_p);
  CheckRank(op, "query", query, 4, "4 dimensions");
  for (const auto& [name, tensor] : {std::pair{"key", &key}, std::pair{"value", &value}}) {
    CheckRank(op, name, *tensor, 4, "4 dimensions");
    CheckType(op, name, *tensor, query.scalar_type(), " (query.dtype)");
    CheckSize(op, name, *tensor, 0, query.size(0), " (query.shape[0])");
    CheckSize(op, name, *tensor, 3, query.size(3), " (query.shape[3])");
  }
  CheckSize(op, "value", value, 1, key.size(1), " (key.shape[1])");
  CheckSize(op, "value", value, 2, key.size(2), " (key.shape[2])");
  const int64_t heads = query.size(1), heads_kv = key.size(1);
  if (heads != heads_kv && (heads_kv == 0 || heads % heads_kv != 0)) {
    const std::string want = "a divisor of " + std::to_string(heads) + " (query.shape[1])";
    Refuse(op, "key.shape[1]", std::to_string(heads_kv), want);
  }
  if (!attn_mask) return;
  const ScalarType type = attn_mask->scalar_type();
  if (type != query.scalar_type() && type != ScalarType::Float) {
    Refuse(op, "attn_mask.dtype", NameOf(type), NameOf(query.scalar_type()) + " (query.dtype) or torch.float32");
  }
  const int64_t rank = attn_mask->dim();
  const Dims scores{query.size(0), heads, query.size(2), key.size(2)};
  bool fits = rank == 2 || rank == 4;
  for (int64_t axis = 0; fits && axis < rank; ++axis) {
    const int64_t size = attn_mask->size(axis);
    fits = size == 1 || size == scores[static_cast<int>(4 - rank + axis)];
  }
  if (!fits) {
    Refuse(op, "attn_mask.shape", Text(ShapeOf(*attn_mask)), "2 or 4 dimensions that broadcast to " + Text(scores));
  }
}

/// Returns the mask with one column per key, because the library wants an innermost stride of 1. A mask of one column
/// is copied for every key.
Tensor WithColumns(const Tensor& mask, int64_t keys) {
  const Tensor rows = Readable(mask);
  const int last = static_cast<int>(rows.dim()) - 1;
  if (rows.size(last) == keys) return rows;
  const Tensor dense = ::torch::stable::contiguous(rows);
  Dims shape = ShapeOf(dense), stride = shape;
  shape[last] = keys;
  for (int64_t axis = last, step = 1; axis >= 0; step *= shape[static_cast<int>(axis--)]) {
    stride[static_cast<int>(axis)] = step;
  }
  Tensor spread = NewTensor(shape, stride, dense.scalar_type());
  const size_t bytes = dense.element_size();
  auto* to = static_cast<char*>(spread.data_ptr());
  const auto* from = static_cast<const char*>(dense.data_ptr());
  for (int64_t row = 0; row < dense.numel(); ++row, from += bytes) {
    for (int64_t key = 0; key < keys; ++key, to += bytes) std::memcpy(to, from, bytes);
  }
  return spread;
}

/// Returns the mask as the library's bias, [B|1, N, Sq, Sk]. Dimensions that broadcast have stride 0.
TensorView BiasOf(const Tensor& mask, const Tensor& query, int64_t keys) {
  const TensorView own = ViewOf(mask);
  const int rank = own.shape.rank();
  const int64_t batch = rank == 4 ? own.shape[0] : 1;
  TensorView bias{own.data, own.dtype, {batch, query.size(1), query.size(2), keys}, {0, 0, 0, 1}};
  for (int i = 0; i < rank - 1; ++i) {
    if (own.shape[i] > 1) bias.stride[4 - rank + i] = own.stride[i];
  }
  return bias;
}

/// The tensors that forward and backward read. The tensors own the memory to which the library's views point.
struct Inputs {
  Inputs(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& attn_mask)
      : q(Readable(query)), k(Readable(key)), v(Readable(value)) {
    if (attn_mask) mask = WithColumns(*attn_mask, key.size(2));
  }

  template <typename Args>
  [[nodiscard]] Args ArgsOf() const {
    Args args;
    args.q = ViewOf(q);
    args.k = ViewOf(k);
    args.v = ViewOf(v);
    if (mask) args.pse = BiasOf(*mask, q, k.size(2));
    return args;
  }

  Tensor q, k, v;
  OptionalTensor mask;
};

AttentionOptions OptionsOf(bool is_causal, const OptionalTensor& attn_mask, std::optional<double> scale) {
  AttentionOptions options;
  if (is_causal) options.mask = Mask::CausalTopLeft();
  if (attn_mask) options.pse_type = PseType::kScaleThenAdd;
  if (scale) options.scale = static_cast<float>(*scale);
  return options;
}

AtenTensorHandle* HandleOf(const OptionalTensor& tensor, AtenTensorHandle& handle) {
  if (!tensor) return nullptr;
  handle = tensor->get();
  return &handle;
}

std::tuple<Tensor, Tensor> Forward(Tensor query, Tensor key, Tensor value, double dropout_p, bool is_causal,
                                   OptionalTensor attn_mask, std::optional<double> scale) {
  Count(kForward);
  DropUndefined(attn_mask);
  if (!IsServed(query)) {  // calls PyTorch's own kernel, not through the dispatcher
    AtenTensorHandle mask = nullptr, out = nullptr, lse = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
        query.get(), key.get(), value.get(), dropout_p, is_causal, HandleOf(attn_mask, mask), scale ? &*scale : nullptr,
        &out, &lse));
    return {Tensor(out), Tensor(lse)};
  }
  CheckDense(kForward, query, key, value, dropout_p, attn_mask);
  const int64_t batch = query.size(0), heads = query.size(1), rows = query.size(2);
  Output out(::torch::stable::empty_like(query));
  Tensor lse = NewTensor({batch, heads, rows}, {heads * rows, 1, heads}, ScalarType::Float);
  Tensor written = out.written();
  if (IsEmpty(query, key)) {
    zero_(written);
    zero_(lse);
    return {out.Finished(), lse};
  }
  const Inputs inputs(query, key, value, attn_mask);
  auto args = inputs.ArgsOf<AttentionArgs>();
  args.out = ViewOf(written);
  args.lse = ViewOf(lse);
  args.lse.stride = {heads * rows, 1, heads};
  Check(kForward, FlashAttention(args, OptionsOf(is_causal, attn_mask, scale), ContextOfThread()));
  if (attn_mask) ReplaceEmptyRows(lse, 0);
  return {out.Finished(), lse};
}

/// Returns an uninitialised gradient. The gradient's memory has the order [B, S, N, D].
Tensor NewGradient(const Tensor& of) {
  const int64_t heads = of.size(1), rows = of.size(2), size = of.size(3);
  return NewTensor(ShapeOf(of), {rows * heads * size, size, heads * size, 1}, of.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> Backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
                                            Tensor logsumexp, double dropout_p, bool is_causal,
                                            OptionalTensor attn_mask, std::optional<double> scale) {
  Count(kBackward);
  DropUndefined(attn_mask);
  if (!IsServed(query)) {
    AtenTensorHandle mask = nullptr, dq = nullptr, dk = nullptr, dv = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out.get(), query.get(), key.get(), value.get(), out.get(), logsumexp.get(), dropout_p, is_causal,
        HandleOf(attn_mask, mask), scale ? &*scale : nullptr, &dq, &dk, &dv));
    return {Tensor(dq), Tensor(dk), Tensor(dv)};
  }
  CheckDense(kBackward, query, key, value, dropout_p, attn_mask);
  CheckType(kBackward, "grad_out", grad_out, query.scalar_type(), " (query.dtype)");
  CheckType(kBackward, "out", out, query.scalar_type(), " (query.dtype)");
  CheckType(kBackward, "logsumexp", logsumexp, ScalarType::Float, "");
  Tensor dq = NewGradient(query), dk = NewGradient(key), dv = NewGradient(value);
  if (IsEmpty(query, key)) {
    for (Tensor* gradient : {&dq, &dk, &dv}) zero_(*gradient);
    return {dq, dk, dv};
  }
  const Inputs inputs(query, key, value, attn_mask);
  const Tensor d_out = Readable(grad_out), o = Readable(out);
  auto args = inputs.ArgsOf<AttentionGradArgs>();
  args.out = ViewOf(o);
  args.d_out = ViewOf(d_out);
  // The library reads a maximum m and a sum s per row and uses m + log(s). With s = 1, m can be the logsumexp.
  static constexpr float kOne = 1;
  args.softmax_max = ViewOf(logsumexp);
  args.softmax_sum = {&kOne, DType::kF32, args.softmax_max.shape, {0, 0, 0}};
  args.dq = ViewOf(dq);
  args.dk = ViewOf(dk);
  args.dv = ViewOf(dv);
  Check(kBackward, FlashAttentionGrad(args, OptionsOf(is_causal, attn_mask, scale), ContextOfThread()));
  return {dq, dk, dv};
}

}  // namespace

void AddDense(::torch::stable::detail::StableLibrary& library) {
  library.impl(kForward, TORCH_BOX(&Forward));
  library.impl(kBackward, TORCH_BOX(&Backward));
}

}  // namespace fa::torch_kernels
