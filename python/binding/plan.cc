#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings.h"
#include "operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fa::python {
namespace {

/// Reads a member of PlanInfo, as the getter of a read-only Python property.
template <auto member>
auto Get(const PlanDescription& plan) {
  return plan.info.*member;
}

}  // namespace

void BindPlan(nb::module_& module) {
  nb::class_<PlanDescription>(module, "PlanDescription", "What a call would run, and why. str() says it in words.")
      .def("__str__", [](const PlanDescription& plan) { return plan.text; })
      .def_prop_ro("op", &Get<&PlanInfo::op>)
      .def_prop_ro("isa", &Get<&PlanInfo::isa>, "instruction-set level of the kernels")
      .def_prop_ro("kernels", &Get<&PlanInfo::kernels>, "registry names, in order of use")
      .def_prop_ro("reason", &Get<&PlanInfo::reason>, "why this tile shape")
      .def_prop_ro("block_q", &Get<&PlanInfo::block_q>, "rows of a tile")
      .def_prop_ro("block_k", &Get<&PlanInfo::block_k>, "keys of a block")
      .def_prop_ro("tasks", &Get<&PlanInfo::tasks>)
      .def_prop_ro("edges", &Get<&PlanInfo::edges>)
      .def_prop_ro("workers", &Get<&PlanInfo::workers>)
      .def_prop_ro("flops", &Get<&PlanInfo::flops>, "of kept pairs")
      .def_prop_ro("flops_full", &Get<&PlanInfo::flops_full>, "were nothing masked")
      .def_prop_ro("flops_visited", &Get<&PlanInfo::flops_visited>, "of the pairs in visited blocks")
      .def_prop_ro("workspace_bytes", &Get<&PlanInfo::workspace_bytes>)
      .def_prop_ro("load", &Get<&PlanInfo::load>, "predicted busy share of each worker, 1 = the longest")
      .def_prop_ro("efficiency", &Get<&PlanInfo::efficiency>, "simulated: work / (workers * makespan)");
}

}  // namespace fa::python
