// Decode attention of PyTorch's tensors.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "arrays.h"
#include "bindings.h"
#include "fa/decode_attention.h"
#include "plan_cache.h"
#include "tensor_calls.h"
#include "tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// Reads lengths from None (no lengths), a tensor of integers [n] or a list of integers. Returns nothing for any other
/// object.
std::optional<Lengths> LengthsOf(nb::handle object) {
  Lengths lengths;
  if (object.is_none()) return lengths;
  if (nb::isinstance<nb::list>(object)) {
    for (const nb::handle item : nb::borrow<nb::list>(object)) {
      if (!nb::try_cast(item, lengths.emplace_back(), /*convert=*/false)) return {};
    }
    return lengths;
  }
  const auto view = ReadTensor(object);
  if (!view || view->shape.rank() != 1 || (view->dtype != DType::kI32 && view->dtype != DType::kI64)) return {};
  for (int64_t i = 0; i < view->shape[0]; ++i) {
    const int64_t at = i * view->stride[0];
    lengths.push_back(view->dtype == DType::kI64 ? static_cast<const int64_t*>(view->data)[at]
                                                 : static_cast<const int32_t*>(view->data)[at]);
  }
  return lengths;
}

/// Returns the output, or (output, lse) with return_lse. With by_row the output lies in memory as [B, S, N, Dv], and
/// otherwise in the order of its shape.
nb::object Decode(nb::handle query, nb::handle key, nb::handle value, nb::handle block_table, nb::handle dense_mask,
                  nb::handle pse, nb::handle sink, const DecodeAttentionOptions& options, nb::handle lengths_q,
                  nb::handle lengths_kv, bool by_row, bool return_lse, Context* context) {
  Views views;
  DecodeAttentionArgs args;
  const TensorView k = views(key), v = views(value);
  args.q = views(query);
  args.k = {&k, 1};
  args.v = {&v, 1};
  args.block_table = views(block_table);
  args.dense_mask = views(dense_mask);
  args.pse = views(pse);
  args.sink = views(sink, /*any_innermost=*/true);
  const auto rows_in_use = LengthsOf(lengths_q), keys_in_use = LengthsOf(lengths_kv);
  if (!views.readable() || !rows_in_use || !keys_in_use) return nb::none();
  (options.layout == Layout::kTND ? args.cu_q : args.lengths_q) = *rows_in_use;
  args.lengths_kv = *keys_in_use;
  const auto sizes = SizesOf(args.q, k, v, options.layout);
  if (!sizes) return nb::none();
  const Dims shape = sizes->shape(options.layout);
  const nb::object out = NewTensor(query, shape, by_row ? sizes->strides_by_row(options.layout) : DenseStride(shape));
  nb::object lse;
  if (return_lse) lse = NewFloats({sizes->batch, sizes->heads, sizes->rows});
  args.out = Output(out);
  args.lse = Output(lse);
  std::optional<Signature> signature;
  if (sizes->small() && HasNoLists(options.mask)) {
    signature.emplace(context);
    for (const TensorView& view : {args.q, k, v, args.block_table, args.dense_mask, args.pse, args.sink}) {
      signature->Add(view);
    }
    signature->Add(*rows_in_use);
    signature->Add(*keys_in_use);
    signature->Add(int64_t{by_row});
    signature->Add(int64_t{return_lse});
    signature->Add(static_cast<int64_t>(options.layout));
    signature->Add(options.heads);
    signature->Add(options.scale);
    signature->Add(options.mask);
    ForEachNumber([&](auto, auto, auto number) { signature->Add(number); }, options);
    signature->Add(static_cast<int64_t>(options.antiquant));
  }
  RunPlanned<PlanDecodeAttention>(signature, args, options, context);
  return return_lse ? nb::object(nb::make_tuple(out, lse)) : out;
}

}  // namespace

void BindTensorDecode(nb::module_& module) {
  module.def("attend_cache", &Decode, "query"_a.none(), "key"_a.none(), "value"_a.none(), "block_table"_a.none(),
             "dense_mask"_a.none(), "pse"_a.none(), "sink"_a.none(), "options"_a, "lengths_q"_a.none(),
             "lengths_kv"_a.none(), "by_row"_a, "return_lse"_a, "context"_a.none());
}

}  // namespace fa::python
