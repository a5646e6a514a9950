#ifndef FA_OPS_PLAN_MACHINE_H_
#define FA_OPS_PLAN_MACHINE_H_

#include <memory>
#include <utility>
#include <vector>

#include "core/context_impl.h"
#include "core/guarded_call.h"
#include "core/kernels/kernel_types.h"
#include "core/task_graph.h"
#include "fa/context.h"
#include "fa/plan.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The kernels of a context's instruction set for operands of a type.
[[nodiscard]] const core::kernels::KernelTable& KernelsOf(const Context& context, DType dtype);
/// The context's machine as the planner sees it.
[[nodiscard]] tiling::Machine MachineOf(const Context& context, const core::kernels::KernelTable& table);

/// Of every task: the worker whose range it starts in.
[[nodiscard]] std::vector<int> FirstWorkers(const core::TaskGraph& graph);

/// Bind -> plan: an `Impl` made from the context in use and what `bind` returns, or the first error.
template <typename Impl, typename Bind>
Result<Plan> MakePlan(Context* context, Bind&& bind) {
  return core::GuardedCall("the plan", [&]() -> Result<Plan> {
    Context& used = context != nullptr ? *context : Context::Default();
    if (Status status = used.impl().status(); !status.ok()) return status;
    auto bound = bind();
    if (!bound.ok()) return bound.status();
    return Plan(std::make_shared<const Impl>(used, std::move(bound).value()));
  });
}

}  // namespace fa::ops

#endif  // FA_OPS_PLAN_MACHINE_H_
