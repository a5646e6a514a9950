#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <limits>
#include <optional>
#include <string>

#include "bindings.h"
#include "fa/infer_attention.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

constexpr std::array kInferLayouts = {Layout::kBSH,       Layout::kBSND,     Layout::kBNSD,      Layout::kTND,
                                      Layout::kNTD,       Layout::kNSD,      Layout::kBNSD_BSND, Layout::kBSH_BNSD,
                                      Layout::kBSND_BNSD, Layout::kBSH_NBSD, Layout::kBSND_NBSD, Layout::kBNSD_NBSD,
                                      Layout::kTND_NTD,   Layout::kNTD_TND};

InferAttentionOptions MakeInferOptions(const std::string& layout, int64_t heads, int64_t heads_kv,
                                       std::optional<double> scale, int64_t sparse_mode, int64_t pre, int64_t next,
                                       int64_t block_size, bool antiquant_per_token, bool infinite_lse) {
  return {.layout = Named<Layout>("layout", layout, kInferLayouts),
          .heads = heads,
          .heads_kv = heads_kv,
          .scale = NearestFloat(scale),
          .sparse_mode = sparse_mode,
          .pre = pre,
          .next = next,
          .block_size = block_size,
          .antiquant = antiquant_per_token ? Antiquant::kPerToken : Antiquant::kPerTensorOrChannel,
          .lse_without_keys =
              infinite_lse ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity()};
}

struct InferArgs : InferAttentionArgs {
  DecodeLists lists;
};

/// Makes the arguments of a call. Lengths of packed layouts are prefix sums; only lengths of keys in pages are not.
InferArgs MakeInferArgs(CallArrays& arrays, const InferAttentionOptions& options, const Lengths& lengths_q,
                        const Lengths& lengths_kv) {
  const bool packed = options.layout == Layout::kTND || options.layout == Layout::kNTD ||
                      options.layout == Layout::kTND_NTD || options.layout == Layout::kNTD_TND;
  InferArgs args;
  TakeDecodeArrays(arrays, &args.lists, &args);
  args.q_scale = arrays.Statistics("q_scale");
  args.q_padding = arrays.In("q_padding");
  args.kv_padding = arrays.In("kv_padding");
  args.k_prefix = arrays.In("k_prefix");
  args.v_prefix = arrays.In("v_prefix");
  for (TensorView* prefix : {&args.k_prefix, &args.v_prefix}) {
    if (prefix->dtype == DType::kI32) prefix->dtype = DType::kI4x8;
  }
  (packed ? args.cu_q : args.lengths_q) = lengths_q;
  (packed && args.block_table.data == nullptr ? args.cu_kv : args.lengths_kv) = lengths_kv;
  return args;
}

}  // namespace

void BindInfer(nb::module_& module) {
  using Options = InferAttentionOptions;
  nb::class_<Options>(module, "InferAttentionOptions")
      .def(nb::new_(&MakeInferOptions), nb::kw_only(), "layout"_a, "heads"_a = 0, "heads_kv"_a = 0,
           "scale"_a = nb::none(), "sparse_mode"_a = 0, "pre"_a = Options().pre, "next"_a = Options().next,
           "block_size"_a = 0, "antiquant_per_token"_a = false, "infinite_lse"_a = false);
  DefineOperator<InferAttentionOptions, PlanInferAttention, InferAttention>(module, "infer", &MakeInferArgs);
}

}  // namespace fa::python
