// Attention of PyTorch's tensors, forward and backward.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "bindings.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "plan_cache.h"
#include "tensor_calls.h"
#include "tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// The order of dimensions that the output has in memory.
enum class Order : uint8_t {
  kByRow,        ///< [B, S, N, Dv]
  kDense,        ///< [B, N, S, Dv], as its shape
  kAsQuery,      ///< like torch.empty_like(query) if Dv equals D, else in the order of its shape
  kOnlyAsQuery,  ///< like torch.empty_like(query); if the library cannot write this order, the call is not taken
};

Order OrderOf(const std::string& name) {
  if (name == "by row") return Order::kByRow;
  if (name == "dense") return Order::kDense;
  if (name == "as query") return Order::kAsQuery;
  Raise(PyExc_ValueError, Arg("order").Is("\"" + name + "\"") + ", want by row, dense or as query");
}

/// The tensors that both the forward and the backward read, and their sizes.
struct Inputs {
  TensorView q, k, v, dense_mask, pse, sink;
  Sizes sizes;
};

/// Returns the inputs, or nothing if the functions of this file do not take the call. With `grouped`, N may be any
/// multiple of Nkv, and otherwise N must equal Nkv.
std::optional<Inputs> Read(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                           nb::handle sink, const AttentionOptions& options, bool grouped, Order order) {
  Views views;
  Inputs in;
  in.q = views(query);
  in.k = views(key);
  in.v = views(value);
  in.dense_mask = views(dense_mask);
  in.pse = views(pse);
  in.sink = views(sink, /*any_innermost=*/true);
  if (!views.readable()) return {};
  const auto sizes = SizesOf(in.q, in.k, in.v, options.layout);
  const int heads = options.layout == Layout::kBNSD ? 1 : 2;
  if (!sizes || in.k.shape[0] != sizes->batch || !(grouped || in.k.shape[heads] == sizes->heads)) return {};
  // empty_like follows the query's innermost stride. The view loses that stride if the innermost dimension has size 1.
  const bool as_query = order == Order::kAsQuery || order == Order::kOnlyAsQuery;
  if (as_query && in.q.shape[3] == 1) return {};
  in.sizes = *sizes;
  return in;
}

template <typename Args>
Args ArgsOf(const Inputs& in) {
  Args args;
  args.q = in.q;
  args.k = in.k;
  args.v = in.v;
  args.dense_mask = in.dense_mask;
  args.pse = in.pse;
  args.sink = in.sink;
  return args;
}

/// Returns the signature of a call, or nothing if its plan is not to be kept.
std::optional<Signature> SignatureOf(const Inputs& in, const AttentionOptions& options, const Context* context) {
  if (!in.sizes.small() || !HasNoLists(options.mask) || options.dropout) return {};
  Signature signature(context);
  for (const TensorView* view : {&in.q, &in.k, &in.v, &in.dense_mask, &in.pse, &in.sink}) signature.Add(*view);
  signature.Add(static_cast<int64_t>(options.layout));
  signature.Add(options.heads);
  signature.Add(options.scale);
  signature.Add(options.mask);
  signature.Add(static_cast<int64_t>(options.pse_type));
  ForEachNumber([&](auto, auto, auto number) { signature.Add(number); }, options);
  return signature;
}

bool Attends(nb::handle query, nb::handle key, nb::handle value, const AttentionOptions& options, bool grouped) {
  const nb::object none = nb::none();
  return Read(query, key, value, none, none, none, options, grouped, Order::kAsQuery).has_value();
}

/// Returns the output, or no object for a call that is not taken.
nb::object NewOutput(nb::handle query, const Inputs& in, Layout layout, Order order) {
  const Sizes& sizes = in.sizes;
  if (order != Order::kByRow && order != Order::kDense && sizes.dv == in.q.shape[3]) {
    nb::object like = NewTensorLike(query);
    if (Output(like).stride[3] == 1) return like;  // if rows of the query overlap, empty_like may return another stride
  }
  if (order == Order::kOnlyAsQuery) return {};
  const Dims shape = sizes.shape(layout);
  return NewTensor(query, shape, order == Order::kByRow ? sizes.strides_by_row(layout) : DenseStride(shape));
}

/// What a call returns after its output.
enum class Statistics : uint8_t { kNone, kMaxAndSum, kLse };

/// Returns the output, [B, N, S, Dv] or [B, S, N, Dv], in the type of `query`. With kMaxAndSum, returns (output,
/// softmax_max, softmax_sum), and with kLse (output, lse). The heads of lse are innermost in memory.
nb::object Run(nb::handle query, const Inputs& in, const AttentionOptions& options, Statistics statistics, Order order,
               Context* context) {
  const Sizes& sizes = in.sizes;
  auto args = ArgsOf<AttentionArgs>(in);
  const nb::object out = NewOutput(query, in, options.layout, order);
  if (!out.is_valid()) return nb::none();
  const Dims shape{sizes.batch, sizes.heads, sizes.rows};
  nb::object softmax_max, softmax_sum, lse;
  if (statistics == Statistics::kMaxAndSum) {
    softmax_max = NewFloats(shape);
    softmax_sum = NewFloats(shape);
  } else if (statistics == Statistics::kLse) {
    lse = NewFloats(shape, {sizes.rows * sizes.heads, 1, sizes.heads});
  }
  args.out = Output(out);
  args.softmax_max = Output(softmax_max);
  args.softmax_sum = Output(softmax_sum);
  args.lse = Output(lse);
  auto signature = SignatureOf(in, options, context);
  if (signature) {
    signature->Add(static_cast<int64_t>(statistics));
    signature->Add(args.out);
  }
  RunPlanned<PlanFlashAttention>(signature, args, options, context);
  if (statistics == Statistics::kNone) return out;
  return statistics == Statistics::kLse ? nb::make_tuple(out, lse) : nb::make_tuple(out, softmax_max, softmax_sum);
}

nb::object Attend(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                  nb::handle sink, const AttentionOptions& options, bool grouped, bool statistics, Context* context,
                  const std::string& order) {
  const Order own = OrderOf(order);
  const auto in = Read(query, key, value, dense_mask, pse, sink, options, grouped, own);
  const Statistics asked = statistics ? Statistics::kMaxAndSum : Statistics::kNone;
  return in ? Run(query, *in, options, asked, own, context) : nb::none();
}

/// Broadcasts `mask` to [B, N, rows, keys]. A bias that is the same for all batch elements becomes [1, N, rows, keys].
/// Returns nothing if the mask does not broadcast, or if its last dimension is not the number of keys.
std::optional<TensorView> Spread(const TensorView& mask, const Inputs& in) {
  const int rank = mask.shape.rank();
  if (rank < 1 || rank > 4) return {};
  const bool alike = mask.dtype != DType::kBool && (rank < 4 || mask.shape[0] == 1);
  const Dims shape{alike ? 1 : in.sizes.batch, in.sizes.heads, in.sizes.rows, in.k.shape[2]};
  TensorView view{mask.data, mask.dtype, shape, {0, 0, 0, 1}};
  for (int own = rank - 1, at = 3; own >= 0; --own, --at) {
    if (mask.shape[own] == shape[at]) {
      view.stride[at] = mask.stride[own];
    } else if (at == 3 || mask.shape[own] != 1) {
      return {};
    }
  }
  return view;
}

/// Works like Read in layout BNSD, with a mask of one to four dimensions that broadcasts, or None. A bool mask becomes
/// the dense mask. A mask of any other type becomes the bias.
std::optional<Inputs> ReadMasked(nb::handle query, nb::handle key, nb::handle value, nb::handle mask,
                                 const AttentionOptions& options, bool grouped, Order order) {
  const nb::object none = nb::none();
  auto in = Read(query, key, value, none, none, none, options, grouped, order);
  if (!in || mask.is_none()) return in;
  Views views;
  const TensorView own = views(mask);
  if (!views.readable() || options.layout != Layout::kBNSD) return {};
  const auto view = Spread(own, *in);
  if (!view) return {};
  (own.dtype == DType::kBool ? in->dense_mask : in->pse) = *view;
  return in;
}

/// Works like Attend in layout BNSD, with a mask as ReadMasked takes it. A bool mask drops keys where it is true.
nb::object AttendMasked(nb::handle query, nb::handle key, nb::handle value, nb::handle mask,
                        const AttentionOptions& options, bool grouped, const std::string& order_name,
                        Context* context) {
  const Order order = OrderOf(order_name);
  const auto in = ReadMasked(query, key, value, mask, options, grouped, order);
  return in ? Run(query, *in, options, Statistics::kNone, order, context) : nb::none();
}

/// Returns (output, lse) with the strides of PyTorch's operator for CPUs. The lse of a row without keys is 0.
nb::object AttendWithLse(nb::handle query, nb::handle key, nb::handle value, nb::handle bias,
                         const AttentionOptions& options, Context* context) {
  const Order order = Order::kOnlyAsQuery;
  const auto in = ReadMasked(query, key, value, bias, options, /*grouped=*/true, order);
  if (!in) return nb::none();
  nb::object results = Run(query, *in, options, Statistics::kLse, order, context);
  if (in->pse.data != nullptr && !results.is_none()) {
    auto* const lse = static_cast<float*>(Output(results[1]).data);
    const int64_t count = in->sizes.batch * in->sizes.heads * in->sizes.rows;
    std::replace(lse, lse + count, -std::numeric_limits<float>::infinity(), 0.0f);
  }
  return results;
}

nb::object NewGradient(nb::handle tensor, const Dims& shape, Layout layout, bool by_row) {
  const int heads = layout == Layout::kBNSD ? 1 : 2;
  const Sizes sizes{shape[0], shape[3 - heads], shape[heads], shape[3]};
  return NewTensor(tensor, shape, by_row ? sizes.strides_by_row(layout) : DenseStride(shape));
}

/// The tensors that only the backward reads.
struct GradInputs {
  nb::handle out, softmax_max, softmax_sum, d_out;
};

/// Returns (dq, dk, dv). With `by_row` they lie in memory as [B, S, N, D], and otherwise in the order of their shapes.
/// Without softmax_sum, softmax_max holds the lse.
nb::object RunBackward(nb::handle query, nb::handle key, nb::handle value, const Inputs& in, const GradInputs& grad,
                       const AttentionOptions& options, bool by_row, Context* context) {
  static constexpr float kOne = 1;
  auto args = ArgsOf<AttentionGradArgs>(in);
  Views views;
  args.out = views(grad.out);
  args.d_out = views(grad.d_out);
  args.softmax_max = views(grad.softmax_max, /*any_innermost=*/true);
  args.softmax_sum = views(grad.softmax_sum, /*any_innermost=*/true);
  if (!views.readable()) return nb::none();
  if (grad.softmax_sum.is_none()) args.softmax_sum = {&kOne, DType::kF32, args.softmax_max.shape, {0, 0, 0}};
  const nb::object dq = NewGradient(query, in.q.shape, options.layout, by_row);
  const nb::object dk = NewGradient(key, in.k.shape, options.layout, by_row);
  const nb::object dv = NewGradient(value, in.v.shape, options.layout, by_row);
  args.dq = Output(dq);
  args.dk = Output(dk);
  args.dv = Output(dv);
  auto signature = SignatureOf(in, options, context);
  if (signature) {
    signature->Add(int64_t{by_row});
    for (const TensorView* view : {&args.out, &args.d_out, &args.softmax_max, &args.softmax_sum}) signature->Add(*view);
  }
  RunPlanned<PlanFlashAttentionGrad>(signature, args, options, context);
  return nb::make_tuple(dq, dk, dv);
}

nb::object AttendBackward(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                          nb::handle out, nb::handle softmax_max, nb::handle softmax_sum, nb::handle d_out,
                          const AttentionOptions& options, bool by_row, Context* context) {
  const Order order = by_row ? Order::kByRow : Order::kDense;
  const auto in = Read(query, key, value, dense_mask, pse, nb::none(), options, /*grouped=*/true, order);
  if (!in) return nb::none();
  return RunBackward(query, key, value, *in, {out, softmax_max, softmax_sum, d_out}, options, by_row, context);
}

nb::object AttendBackwardWithLse(nb::handle query, nb::handle key, nb::handle value, nb::handle bias, nb::handle out,
                                 nb::handle lse, nb::handle d_out, const AttentionOptions& options, Context* context) {
  const nb::object none = nb::none();
  const auto in = ReadMasked(query, key, value, bias, options, /*grouped=*/true, Order::kByRow);
  if (!in) return none;
  return RunBackward(query, key, value, *in, {out, lse, none, d_out}, options, /*by_row=*/true, context);
}

}  // namespace

void BindTensorAttention(nb::module_& module) {
  module.def("attend", &Attend, "query"_a.none(), "key"_a.none(), "value"_a.none(), "dense_mask"_a.none(),
             "pse"_a.none(), "sink"_a.none(), "options"_a, "grouped"_a, "statistics"_a, "context"_a.none(),
             "order"_a = "by row");
  module.def("attend_masked", &AttendMasked, "query"_a.none(), "key"_a.none(), "value"_a.none(), "mask"_a, "options"_a,
             "grouped"_a, "order"_a, "context"_a.none());
  module.def("attends", &Attends, "query"_a.none(), "key"_a.none(), "value"_a.none(), "options"_a, "grouped"_a);
  module.def("attend_backward", &AttendBackward, "query"_a, "key"_a, "value"_a, "dense_mask"_a.none(), "pse"_a.none(),
             "out"_a, "softmax_max"_a, "softmax_sum"_a, "d_out"_a, "options"_a, "by_row"_a, "context"_a.none());
  module.def("attend_with_lse", &AttendWithLse, "query"_a, "key"_a, "value"_a, "bias"_a.none(), "options"_a,
             "context"_a.none());
  module.def("attend_backward_with_lse", &AttendBackwardWithLse, "query"_a, "key"_a, "value"_a, "bias"_a.none(),
             "out"_a, "lse"_a, "d_out"_a, "options"_a, "context"_a.none());
}

}  // namespace fa::python
