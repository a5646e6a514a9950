// Attention of PyTorch's tensors, forward and backward.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

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

/// What forward and backward read, and its sizes.
struct Inputs {
  TensorView q, k, v, dense_mask, pse, sink;
  Sizes sizes;
};

/// Nothing if the call is not for these functions. grouped: N may be a multiple of Nkv.
std::optional<Inputs> Read(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                           nb::handle sink, const AttentionOptions& options, bool grouped) {
  Views views;
  Inputs in;
  in.q = views(query);
  in.k = views(key);
  in.v = views(value);
  in.dense_mask = views(dense_mask);
  in.pse = views(pse);
  in.sink = views(sink);
  if (!views.readable()) return {};
  const auto sizes = SizesOf(in.q, in.k, in.v, options.layout);
  const int heads = options.layout == Layout::kBNSD ? 1 : 2;
  if (!sizes || in.k.shape[0] != sizes->batch || !(grouped || in.k.shape[heads] == sizes->heads)) return {};
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

/// The signature of the options and of what forward and backward read; none if no plan is to be kept.
std::optional<Signature> SignatureOf(const Inputs& in, const AttentionOptions& options, const Context* context) {
  if (!in.sizes.small() || !HasNoLists(options.mask) || options.dropout) return {};
  Signature signature(context);
  for (const TensorView* view : {&in.q, &in.k, &in.v, &in.dense_mask, &in.pse, &in.sink}) signature.Add(*view);
  signature.Add(static_cast<int64_t>(options.layout));
  signature.Add(options.heads);
  signature.Add(options.scale);
  signature.Add(options.mask);
  signature.Add(static_cast<int64_t>(options.pse_type));
  signature.Add(options.q_start);
  signature.Add(options.kv_start);
  signature.Add(std::optional(options.softcap));
  signature.Add(std::optional(options.keep_prob));
  return signature;
}

bool Attends(nb::handle query, nb::handle key, nb::handle value, const AttentionOptions& options, bool grouped) {
  const nb::object none = nb::none();
  return Read(query, key, value, none, none, none, options, grouped).has_value();
}

/// The output, [B, N, S, Dv] or [B, S, N, Dv], in memory [B, S, N, Dv] and of the type of `query`; with statistics
/// (output, softmax_max, softmax_sum).
nb::object Run(nb::handle query, const Inputs& in, const AttentionOptions& options, bool statistics, Context* context) {
  const Sizes& sizes = in.sizes;
  auto args = ArgsOf<AttentionArgs>(in);
  const nb::object out = NewTensor(query, sizes.shape(options.layout), sizes.strides_by_row(options.layout));
  nb::object softmax_max, softmax_sum;
  if (statistics) {
    softmax_max = NewFloats({sizes.batch, sizes.heads, sizes.rows});
    softmax_sum = NewFloats({sizes.batch, sizes.heads, sizes.rows});
  }
  args.out = Output(out);
  args.softmax_max = Output(softmax_max);
  args.softmax_sum = Output(softmax_sum);
  auto signature = SignatureOf(in, options, context);
  if (signature) signature->Add(int64_t{statistics});
  RunPlanned<PlanFlashAttention>(signature, args, options, context);
  if (!statistics) return out;
  return nb::make_tuple(out, softmax_max, softmax_sum);
}

nb::object Attend(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                  nb::handle sink, const AttentionOptions& options, bool grouped, bool statistics, Context* context) {
  const auto in = Read(query, key, value, dense_mask, pse, sink, options, grouped);
  return in ? Run(query, *in, options, statistics, context) : nb::none();
}

/// A mask that broadcasts to [B, N, rows, keys] as a view of that shape, a bias that is alike for all batches of
/// [1, N, rows, keys]; nothing if it does not, or has no rows of all keys.
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

/// As Attend in layout BNSD with a mask of at most four dimensions, which broadcast: bool, true where a key is not
/// looked at, or a bias.
nb::object AttendMasked(nb::handle query, nb::handle key, nb::handle value, nb::handle mask,
                        const AttentionOptions& options, bool grouped, Context* context) {
  const nb::object none = nb::none();
  auto in = Read(query, key, value, none, none, none, options, grouped);
  Views views;
  const TensorView own = views(mask);
  if (!in || !views.readable() || options.layout != Layout::kBNSD) return nb::none();
  const auto view = Spread(own, *in);
  if (!view) return nb::none();
  (own.dtype == DType::kBool ? in->dense_mask : in->pse) = *view;
  return Run(query, *in, options, /*statistics=*/false, context);
}

/// Uninitialised, in the order of dimensions that `view` has in memory, without gaps; the innermost stays where it is.
nb::object GradientOf(nb::handle tensor, const TensorView& view) {
  const int last = view.shape.rank() - 1;
  std::vector<int> inner_first;
  for (int i = last - 1; i >= 0; --i) inner_first.push_back(i);
  std::stable_sort(inner_first.begin(), inner_first.end(),
                   [&](int a, int b) { return view.stride[a] < view.stride[b]; });
  Dims strides = view.shape;
  strides[last] = 1;
  int64_t step = view.shape[last];
  for (const int i : inner_first) {
    strides[i] = step;
    step *= view.shape[i];
  }
  return NewTensor(tensor, view.shape, strides);
}

/// dq, dk, dv.
nb::object AttendBackward(nb::handle query, nb::handle key, nb::handle value, nb::handle dense_mask, nb::handle pse,
                          nb::handle out, nb::handle softmax_max, nb::handle softmax_sum, nb::handle d_out,
                          const AttentionOptions& options, Context* context) {
  const auto in = Read(query, key, value, dense_mask, pse, nb::none(), options, /*grouped=*/true);
  if (!in) return nb::none();
  auto args = ArgsOf<AttentionGradArgs>(*in);
  Views views;
  args.out = views(out);
  args.d_out = views(d_out);
  args.softmax_max = views(softmax_max);
  args.softmax_sum = views(softmax_sum);
  if (!views.readable()) return nb::none();
  const nb::object dq = GradientOf(query, in->q), dk = GradientOf(key, in->k), dv = GradientOf(value, in->v);
  args.dq = Output(dq);
  args.dk = Output(dk);
  args.dv = Output(dv);
  auto signature = SignatureOf(*in, options, context);
  if (signature) {
    for (const TensorView* view : {&args.out, &args.d_out, &args.softmax_max, &args.softmax_sum}) signature->Add(*view);
  }
  RunPlanned<PlanFlashAttentionGrad>(signature, args, options, context);
  return nb::make_tuple(dq, dk, dv);
}

}  // namespace

void BindTensorAttention(nb::module_& module) {
  module.def("attend", &Attend, "query"_a.none(), "key"_a.none(), "value"_a.none(), "dense_mask"_a.none(),
             "pse"_a.none(), "sink"_a.none(), "options"_a, "grouped"_a, "statistics"_a, "context"_a.none());
  module.def("attend_masked", &AttendMasked, "query"_a.none(), "key"_a.none(), "value"_a.none(), "mask"_a, "options"_a,
             "grouped"_a, "context"_a.none());
  module.def("attends", &Attends, "query"_a.none(), "key"_a.none(), "value"_a.none(), "options"_a, "grouped"_a);
  module.def("attend_backward", &AttendBackward, "query"_a, "key"_a, "value"_a, "dense_mask"_a.none(), "pse"_a.none(),
             "out"_a, "softmax_max"_a, "softmax_sum"_a, "d_out"_a, "options"_a, "context"_a.none());
}

}  // namespace fa::python
