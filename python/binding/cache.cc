#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "fa/cache_rows.h"
#include "fa/merge_by_lse.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// The arguments together with the lists to which their spans point. The spans stay valid when an object is moved.
struct MergeByLseLists : MergeByLseArgs {
  std::vector<TensorView> lses, outs;
};

MergeByLseLists MergeLseArgs(CallArrays& arrays) {
  MergeByLseLists args;
  args.lses = arrays.List("lse");
  args.outs = arrays.List("local_out");
  args.lse = args.lses;
  args.local_out = args.outs;
  args.out = arrays.Out("out");
  args.lse_out = arrays.Out("lse_out");
  return args;
}

MergeByLseOptions MergeLseOptions(bool positive) {
  MergeByLseOptions options;
  if (positive) options.lse_without_keys = std::numeric_limits<float>::infinity();
  return options;
}

/// Returns the cache `name`. A cache of uint8 gets the type f8e4m3 if `arrays` maps the name `codes` to "e4m3".
MutableTensorView Codes(CallArrays& arrays, const char* name, const char* codes) {
  MutableTensorView cache = arrays.Out(name);
  if (cache.dtype == DType::kU8 && arrays.Word(codes) == "e4m3") cache.dtype = DType::kF8E4M3;
  return cache;
}

ScatterRowsArgs ScatterArgs(CallArrays& arrays) {
  ScatterRowsArgs args;
  args.key = arrays.Statistics("key");
  args.value = arrays.Statistics("value");
  args.slot_mapping = arrays.Statistics("slot_mapping");
  args.source_rows = arrays.Statistics("source_rows");
  args.key_scale = arrays.Statistics("key_scale");
  args.value_scale = arrays.Statistics("value_scale");
  args.key_cache = Codes(arrays, "key_cache", "key_codes");
  args.value_cache = Codes(arrays, "value_cache", "value_codes");
  args.key_scale_cache = arrays.Out("key_scale_cache");
  args.value_scale_cache = arrays.Out("value_scale_cache");
  return args;
}

GatherRowsArgs GatherArgs(CallArrays& arrays) {
  GatherRowsArgs args;
  args.key_cache = arrays.Statistics("key_cache");
  args.value_cache = arrays.Statistics("value_cache");
  args.block_table = arrays.Statistics("block_table");
  args.seq_lens = arrays.Statistics("seq_lens");
  args.seq_offset = arrays.Statistics("seq_offset");
  args.key = arrays.Out("key");
  args.value = arrays.Out("value");
  return args;
}

CacheForm FormOf(const std::string& name) {
  return Named<CacheForm>("form", name, std::array{CacheForm::kBnBsND, CacheForm::kBnNBsD, CacheForm::kNZ});
}

/// Adds the functions NAME and plan_NAME, which take (arrays, settings..., context), to the module. make_options makes
/// the operator's options from the settings.
template <auto plan, auto run, typename MakeArgs, typename Options, typename... Settings, typename... Keywords>
void Define(nb::module_& module, const char* name, MakeArgs make_args, Options (*make_options)(Settings...),
            const Keywords&... keywords) {
  const auto call = [=](nb::dict tensors, Settings... settings, Context* context) {
    CallArrays arrays(std::move(tensors));
    const Options options = make_options(settings...);
    RunChecked(
        arrays, [&] { return make_args(arrays); },
        [&](const auto& args) { return plan(args, options, context).status(); },
        [&](const auto& args) { return run(args, options, context); });
  };
  const auto describe = [=](nb::dict tensors, Settings... settings, Context* context) {
    CallArrays arrays(std::move(tensors), CallArrays::kShapesToo);
    const auto planned = plan(make_args(arrays), make_options(settings...), context);
    Raise(planned.status());
    return PlanDescription{planned->info(), planned->Describe()};
  };
  module.def(name, call, "arrays"_a, keywords..., "context"_a.none());
  module.def(("plan_" + std::string(name)).c_str(), describe, "arrays"_a, keywords..., "context"_a.none());
}

ScatterRowsOptions ScatterOptions(const std::string& form) { return {FormOf(form)}; }
GatherRowsOptions GatherOptions(const std::string& form, bool cumulative) { return {FormOf(form), cumulative}; }

}  // namespace

void BindMergeLse(nb::module_& module) {
  Define<PlanMergeByLse, MergeByLse>(module, "merge_by_lse", &MergeLseArgs, &MergeLseOptions, "positive"_a);
}

void BindScatter(nb::module_& module) {
  Define<PlanScatterRows, ScatterRows>(module, "scatter_rows", &ScatterArgs, &ScatterOptions, "form"_a);
}

void BindGather(nb::module_& module) {
  Define<PlanGatherRows, GatherRows>(module, "gather_rows", &GatherArgs, &GatherOptions, "form"_a, "cumulative"_a);
}

}  // namespace fa::python
