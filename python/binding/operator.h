#ifndef FA_PYTHON_BINDING_OPERATOR_H_
#define FA_PYTHON_BINDING_OPERATOR_H_

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "fa/plan.h"

namespace fa::python {

/// What Python sees of a plan: its facts and its text. The plan itself is not kept.
struct PlanDescription {
  PlanInfo info;
  std::string text;
};

/// Adds the functions NAME and plan_NAME to the module, both with parameters (arrays, options, lengths_q, lengths_kv,
/// context). NAME runs the operator with `run`. plan_NAME takes arrays or shapes, and describes the plan that `plan`
/// makes.
/// @param make_args  makes the operator's arguments from (arrays, options, lengths_q, lengths_kv)
template <typename Options, auto plan, auto run, typename MakeArgs>
void DefineOperator(nanobind::module_& module, const char* name, MakeArgs make_args) {
  namespace nb = nanobind;
  using namespace nb::literals;
  const auto call = [make_args](nb::dict tensors, const Options& options, const Lengths& lengths_q,
                                const Lengths& lengths_kv, Context* context) {
    CallArrays arrays(std::move(tensors));
    RunChecked(
        arrays, [&] { return make_args(arrays, options, lengths_q, lengths_kv); },
        [&](const auto& args) { return plan(args, options, context).status(); },
        [&](const auto& args) { return run(args, options, context); });
  };
  const auto describe = [make_args](nb::dict tensors, const Options& options, const Lengths& lengths_q,
                                    const Lengths& lengths_kv, Context* context) {
    CallArrays arrays(std::move(tensors), CallArrays::kShapesToo);
    auto planned = plan(make_args(arrays, options, lengths_q, lengths_kv), options, context);
    Raise(planned.status());
    return PlanDescription{planned->info(), planned->Describe()};
  };
  module.def(name, call, "arrays"_a, "options"_a, "lengths_q"_a, "lengths_kv"_a, "context"_a.none());
  module.def(("plan_" + std::string(name)).c_str(), describe, "arrays"_a, "options"_a, "lengths_q"_a, "lengths_kv"_a,
             "context"_a.none());
}

}  // namespace fa::python

#endif  // FA_PYTHON_BINDING_OPERATOR_H_
