#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cfenv>
#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"
#include "fa/merge.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

constexpr std::array kLayouts = {Layout::kBNSD, Layout::kBSND, Layout::kBSH,
                                 Layout::kSBH,  Layout::kTND,  Layout::kBNSD_BSND};

AttentionOptions MakeOptions(const std::string& layout, int64_t heads, std::optional<double> scale, const Mask* mask,
                             int64_t pse_type, FA_DENSE_NUMBERS(FA_PARAMETER) std::optional<uint64_t> seed,
                             uint64_t offset) {
  AttentionOptions options;
  options.layout = LayoutOf(layout);
  options.heads = heads;
  options.scale = NearestFloat(scale);
  if (mask != nullptr) options.mask = *mask;
  options.pse_type = PseTypeOf(pse_type);
  FA_DENSE_NUMBERS(FA_TAKE)
  if (seed) options.dropout = PhiloxState{*seed, offset};
  return options;
}

// Fills the members that AttentionArgs and AttentionGradArgs both have, under the same names.
template <typename Args>
void FillInputs(CallArrays& arrays, const Lengths& cu_q, const Lengths& cu_kv, Args* args) {
  args->q = arrays.In("q");
  args->k = arrays.In("k");
  args->v = arrays.In("v");
  args->q_rope = arrays.In("q_rope");
  args->k_rope = arrays.In("k_rope");
  args->pse = arrays.In("pse");
  args->dense_mask = arrays.Mask("dense_mask", &args->pair_mask);
  args->drop_mask = arrays.In("drop_mask");
  args->sink = arrays.Statistics("sink");
  args->cu_q = cu_q;
  args->cu_kv = cu_kv;
}

MergeArgs PartialArgs(CallArrays& arrays) {
  MergeArgs args;
  args.prev_out = arrays.In("prev_out");
  args.prev_max = arrays.Statistics("prev_max");
  args.prev_sum = arrays.Statistics("prev_sum");
  args.cur_out = arrays.In("cur_out");
  args.cur_max = arrays.Statistics("cur_max");
  args.cur_sum = arrays.Statistics("cur_sum");
  args.out = arrays.Out("out");
  args.softmax_max = arrays.Out("softmax_max");
  args.softmax_sum = arrays.Out("softmax_sum");
  return args;
}

void Merge(nb::dict tensors, const std::string& layout, int64_t heads, Context* context) {
  CallArrays arrays(std::move(tensors));
  const MergeOptions options = {LayoutOf(layout), heads};
  RunChecked(
      arrays, [&] { return PartialArgs(arrays); },
      [&](const MergeArgs& args) { return PlanMergePartials(args, options, context).status(); },
      [&](const MergeArgs& args) { return MergePartials(args, options, context); });
}

PlanDescription DescribeMerge(nb::dict tensors, const std::string& layout, int64_t heads, Context* context) {
  CallArrays arrays(std::move(tensors), CallArrays::kShapesToo);
  const auto plan = PlanMergePartials(PartialArgs(arrays), {LayoutOf(layout), heads}, context);
  Raise(plan.status());
  return {plan->info(), plan->Describe()};
}

void DropoutMask(nb::dict tensors, uint64_t seed, uint64_t offset, double keep_prob, int64_t bits, Context* context) {
  CallArrays arrays(std::move(tensors));
  const MutableTensorView mask = arrays.Out("mask");
  const std::span<uint8_t> bytes(static_cast<uint8_t*>(mask.data), static_cast<size_t>(mask.shape[0]));
  RunUnlocked([&] { return GenerateDropoutMask({seed, offset}, NearestFloat(keep_prob), bits, bytes, context); });
}

}  // namespace

AttentionArgs ForwardArgs(CallArrays& arrays, const AttentionOptions& /*options*/, const Lengths& cu_q,
                          const Lengths& cu_kv) {
  AttentionArgs args;
  FillInputs(arrays, cu_q, cu_kv, &args);
  args.out = arrays.Out("out");
  args.softmax_max = arrays.Out("softmax_max");
  args.softmax_sum = arrays.Out("softmax_sum");
  args.lse = arrays.Out("lse");
  return args;
}

AttentionGradArgs BackwardArgs(CallArrays& arrays, const AttentionOptions& /*options*/, const Lengths& cu_q,
                               const Lengths& cu_kv) {
  AttentionGradArgs args;
  FillInputs(arrays, cu_q, cu_kv, &args);
  args.out = arrays.In("out");
  args.d_out = arrays.In("d_out");
  args.softmax_max = arrays.Statistics("softmax_max");
  args.softmax_sum = arrays.Statistics("softmax_sum");
  args.dq = arrays.Out("dq");
  args.dk = arrays.Out("dk");
  args.dv = arrays.Out("dv");
  args.dq_rope = arrays.Out("dq_rope");
  args.dk_rope = arrays.Out("dk_rope");
  args.dpse = arrays.Out("dpse");
  args.dslopes = arrays.Out("dslopes");
  args.dsink = arrays.Out("dsink");
  return args;
}

// The variables are volatile, so that the compiler keeps the rounding between the two calls of fesetenv.
float NearestFloat(double number) {
  std::fenv_t callers;
  std::fegetenv(&callers);
  std::fesetenv(FE_DFL_ENV);
  const volatile double given = number;
  const volatile float nearest = static_cast<float>(given);
  std::fesetenv(&callers);
  return nearest;
}

std::optional<float> NearestFloat(std::optional<double> number) {
  if (!number) return std::nullopt;
  return NearestFloat(*number);
}

Layout LayoutOf(const std::string& name) { return Named<Layout>("layout", name, kLayouts); }

PseType PseTypeOf(int64_t number) {
  if (number < 0 || number > 3) {
    Raise(Status::InvalidArgument(Arg("pse_type").Is(std::to_string(number)) + ", want 0..3"));
  }
  return static_cast<PseType>(number);
}

void BindForward(nb::module_& module) {
  using Options = AttentionOptions;
  nb::class_<Options>(module, "AttentionOptions")
      .def(nb::new_(&MakeOptions), nb::kw_only(), "layout"_a, "heads"_a = 0, "scale"_a = nb::none(),
           "mask"_a = nb::none(), "pse_type"_a = static_cast<int>(Options().pse_type),
           FA_DENSE_NUMBERS(FA_KEYWORD) "seed"_a = nb::none(), "offset"_a = 0);
  DefineOperator<AttentionOptions, PlanFlashAttention, FlashAttention>(module, "forward", &ForwardArgs);
  module.def("dropout_mask", &DropoutMask, "arrays"_a, "seed"_a, "offset"_a, "keep_prob"_a, "bits"_a,
             "context"_a.none());
}

void BindBackward(nb::module_& module) {
  DefineOperator<AttentionOptions, PlanFlashAttentionGrad, FlashAttentionGrad>(module, "backward", &BackwardArgs);
}

void BindMerge(nb::module_& module) {
  module.def("merge", &Merge, "arrays"_a, "layout"_a, "heads"_a, "context"_a.none());
  module.def("plan_merge", &DescribeMerge, "arrays"_a, "layout"_a, "heads"_a, "context"_a.none());
}

}  // namespace fa::python
