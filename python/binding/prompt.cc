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
                                   std::optional<double> scale, const Mask& mask, int64_t pse_type, int64_t q_start,
                                   int64_t kv_start, double softcap) {
  PromptAttentionOptions options;
  options.layout = LayoutOf(layout);
  options.heads = heads;
  options.heads_kv = heads_kv;
  options.scale = NearestFloat(scale);
  options.mask = mask;
  options.pse_type = PseTypeOf(pse_type);
  options.q_start = q_start;
  options.kv_start = kv_start;
  options.softcap = NearestFloat(softcap);
  return options;
}

/// The arguments of a prompt call. Both lists are prefix sums in packed layouts and lengths in the others.
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
  args.dense_mask = arrays.In("dense_mask");
  args.sink = arrays.In("sink");
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
  nb::class_<PromptAttentionOptions>(module, "PromptAttentionOptions")
      .def(nb::new_(&MakeOptions), nb::kw_only(), "layout"_a, "heads"_a, "heads_kv"_a, "scale"_a.none(), "mask"_a,
           "pse_type"_a, "q_start"_a, "kv_start"_a, "softcap"_a);
  DefineOperator<PromptAttentionOptions, PlanPromptFlashAttention, PromptFlashAttention>(module, "prompt", &MakeArgs);
}

}  // namespace fa::python
