#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "fa/decode_attention.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

DecodeAttentionOptions MakeOptions(const std::string& layout, int64_t heads, std::optional<double> scale,
                                   const Mask& mask, double softcap, bool antiquant_per_token) {
  DecodeAttentionOptions options;
  options.layout = LayoutOf(layout);
  options.heads = heads;
  options.scale = NearestFloat(scale);
  options.mask = mask;
  options.softcap = NearestFloat(softcap);
  if (antiquant_per_token) options.antiquant = Antiquant::kPerToken;
  return options;
}

void Decode(nb::dict tensors, const DecodeAttentionOptions& options, const Lengths& lengths_q,
            const Lengths& lengths_kv, Context* context) {
  CallArrays arrays(std::move(tensors));
  DecodeKeys keys;
  RunChecked(
      arrays, [&] { return DecodeArgs(arrays, lengths_q, lengths_kv, keys); },
      [&](const DecodeAttentionArgs& args) { return PlanDecodeAttention(args, options, context).status(); },
      [&](const DecodeAttentionArgs& args) { return DecodeAttention(args, options, context); });
}

}  // namespace

DecodeAttentionArgs DecodeArgs(CallArrays& arrays, const Lengths& lengths_q, const Lengths& lengths_kv,
                               DecodeKeys& keys) {
  keys.k = arrays.List("key");
  keys.v = arrays.List("value");
  DecodeAttentionArgs args;
  args.q = arrays.In("query");
  args.k = keys.k;
  args.v = keys.v;
  args.lengths_kv = lengths_kv;
  args.lengths_q = lengths_q;
  args.block_table = arrays.In("block_table");
  args.antiquant_scale = arrays.In("antiquant_scale");
  args.antiquant_offset = arrays.In("antiquant_offset");
  args.pse = arrays.In("pse");
  args.dense_mask = arrays.In("dense_mask");
  args.sink = arrays.In("sink");
  args.quant_scale2 = arrays.In("quant_scale2");
  args.quant_offset2 = arrays.In("quant_offset2");
  args.out = arrays.Out("out");
  args.lse = arrays.Out("lse");
  return args;
}

void BindDecode(nb::module_& module) {
  nb::class_<DecodeAttentionOptions>(module, "DecodeAttentionOptions")
      .def(nb::new_(&MakeOptions), nb::kw_only(), "layout"_a, "heads"_a, "scale"_a.none(), "mask"_a, "softcap"_a,
           "antiquant_per_token"_a);
  module.def("decode", &Decode, "arrays"_a, "options"_a, "lengths_q"_a, "lengths_kv"_a, "context"_a.none());
}

}  // namespace fa::python
