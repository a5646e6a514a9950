#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "fa/prompt_flash_attention.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

PromptAttentionOptions MakeOptions(const std::string& layout, int64_t heads, int64_t heads_kv,
                                   std::optional<double> scale, const Mask* mask,
                                   FA_PROMPT_NUMBERS(FA_PARAMETER) int64_t pse_type) {
  PromptAttentionOptions options;
  options.layout = LayoutOf(layout);
  options.heads = heads;
  options.heads_kv = heads_kv;
  options.scale = NearestFloat(scale);
  if (mask != nullptr) options.mask = *mask;
  options.pse_type = PseTypeOf(pse_type);
  FA_PROMPT_NUMBERS(FA_TAKE)
  return options;
}

/// Makes the arguments of a prompt call. `query` and `key` are prefix sums in layout TND, otherwise lengths.
PromptAttentionArgs MakeArgs(CallArrays& arrays, const PromptAttentionOptions& options, const Lengths& query,
                             const Lengths& key) {
  const bool packed = options.layout == Layout::kTND;
  PromptAttentionArgs args;
  args.q = arrays.In("q");
  args.k = arrays.In("k");
  args.v = arrays.In("v");
  args.q_rope = arrays.In("q_rope");
  args.k_rope = arrays.In("k_rope");
  args.pse = arrays.In("pse");
  args.dense_mask = arrays.Mask("dense_mask", &args.pair_mask);
  args.sink = arrays.Statistics("sink");
  args.deq_scale1 = arrays.In("deq_scale1");
  args.quant_scale1 = arrays.In("quant_scale1");
  args.deq_scale2 = arrays.In("deq_scale2");
  args.quant_scale2 = arrays.In("quant_scale2");
  args.quant_offset2 = arrays.In("quant_offset2");
  (packed ? args.cu_q : args.lengths_q) = query;
  (packed ? args.cu_kv : args.lengths_kv) = key;
  args.out = arrays.Out("out");
  args.softmax_max = arrays.Out("softmax_max");
  args.softmax_sum = arrays.Out("softmax_sum");
  return args;
}

}  // namespace

void BindPrompt(nb::module_& module) {
  using Options = PromptAttentionOptions;
  nb::class_<Options>(module, "PromptAttentionOptions")
      .def(nb::new_(&MakeOptions), nb::kw_only(), "layout"_a, "heads"_a = 0, "heads_kv"_a = 0, "scale"_a = nb::none(),
           "mask"_a = nb::none(), FA_PROMPT_NUMBERS(FA_KEYWORD) "pse_type"_a = static_cast<int>(Options().pse_type));
  DefineOperator<PromptAttentionOptions, PlanPromptFlashAttention, PromptFlashAttention>(module, "prompt", &MakeArgs);
}

}  // namespace fa::python
