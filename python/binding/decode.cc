#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings.h"
#include "fa/decode_attention.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

DecodeAttentionOptions MakeOptions(const std::string& layout, int64_t heads, std::optional<double> scale,
                                   const Mask* mask, FA_DECODE_NUMBERS(FA_PARAMETER) bool antiquant_per_token) {
  DecodeAttentionOptions options;
  options.layout = LayoutOf(layout);
  options.heads = heads;
  options.scale = NearestFloat(scale);
  if (mask != nullptr) options.mask = *mask;
  FA_DECODE_NUMBERS(FA_TAKE)
  if (antiquant_per_token) options.antiquant = Antiquant::kPerToken;
  return options;
}

/// Gives keys and values the types of their elements. An array cannot say that its bytes hold 8-bit floats, or that its
/// int32 elements hold eight 4-bit numbers each.
void ReadAs(const std::string& kv_dtype, std::vector<TensorView>* tensors) {
  for (TensorView& tensor : *tensors) {
    if (tensor.dtype == DType::kU8 && kv_dtype == "e4m3") tensor.dtype = DType::kF8E4M3;
    if (tensor.dtype == DType::kU8 && kv_dtype == "e5m2") tensor.dtype = DType::kF8E5M2;
    if (tensor.dtype == DType::kI32) tensor.dtype = DType::kI4x8;
  }
}

struct DecodeArgs : DecodeAttentionArgs {
  DecodeLists lists;
};

DecodeArgs MakeArgs(CallArrays& arrays, const DecodeAttentionOptions& options, const Lengths& lengths_q,
                    const Lengths& lengths_kv) {
  DecodeArgs args;
  TakeDecodeArrays(arrays, &args.lists, &args);
  args.lengths_kv = lengths_kv;
  (options.layout == Layout::kTND ? args.cu_q : args.lengths_q) = lengths_q;
  return args;
}

}  // namespace

void TakeDecodeArrays(CallArrays& arrays, DecodeLists* lists, DecodeAttentionArgs* args) {
  lists->keys = arrays.List("k");
  lists->values = arrays.List("v");
  lists->rope_keys = arrays.List("k_rope");
  const std::string kv_dtype = arrays.Word("kv_dtype");
  ReadAs(kv_dtype, &lists->keys);
  ReadAs(kv_dtype, &lists->values);
  args->q = arrays.In("q");
  if (args->q.dtype == DType::kU8 && kv_dtype == "e4m3") args->q.dtype = DType::kF8E4M3;
  args->k = lists->keys;
  args->v = lists->values;
  args->q_rope = arrays.In("q_rope");
  args->k_rope = lists->rope_keys;
  args->block_table = arrays.In("block_table");
  args->k_scale = arrays.Statistics("k_scale");
  args->v_scale = arrays.Statistics("v_scale");
  args->k_offset = arrays.Statistics("k_offset");
  args->v_offset = arrays.Statistics("v_offset");
  args->antiquant_scale = arrays.In("antiquant_scale");
  args->antiquant_offset = arrays.In("antiquant_offset");
  args->deq_scale1 = arrays.In("deq_scale1");
  args->quant_scale1 = arrays.In("quant_scale1");
  args->deq_scale2 = arrays.In("deq_scale2");
  args->pse = arrays.In("pse");
  args->dense_mask = arrays.Mask("dense_mask", &args->pair_mask);
  args->sink = arrays.Statistics("sink");
  args->quant_scale2 = arrays.In("quant_scale2");
  args->quant_offset2 = arrays.In("quant_offset2");
  args->out = arrays.Out("out");
  args->lse = arrays.Out("lse");
}

void BindDecode(nb::module_& module) {
  using Options = DecodeAttentionOptions;
  nb::class_<Options>(module, "DecodeAttentionOptions")
      .def(nb::new_(&MakeOptions), nb::kw_only(), "layout"_a, "heads"_a = 0, "scale"_a = nb::none(),
           "mask"_a = nb::none(), FA_DECODE_NUMBERS(FA_KEYWORD) "antiquant_per_token"_a = false);
  DefineOperator<DecodeAttentionOptions, PlanDecodeAttention, DecodeAttention>(module, "decode", &MakeArgs);
}

}  // namespace fa::python
