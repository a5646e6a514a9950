#ifndef FA_OPS_PLAN_MACHINE_H_
#define FA_OPS_PLAN_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/context/context_impl.h"
#include "core/kernels/kernel_types.h"
#include "core/run/guarded_call.h"
#include "fa/context.h"
#include "fa/error_text.h"
#include "fa/plan.h"
#include "ops/plan/plan_impl.h"
#include "tiling/plan_limits.h"
#include "tiling/problem.h"

namespace fa::ops {

/// Returns the kernels of a context's instruction set for operands of this type.
[[nodiscard]] const core::kernels::KernelTable& KernelsOf(const Context& context, DType dtype);
/// Returns the context's machine as the planner sees it.
[[nodiscard]] tiling::Machine MachineOf(const Context& context, const core::kernels::KernelTable& table);

/// Checks that a workspace fits into this machine's memory. @return kOutOfMemory if it does not
[[nodiscard]] Status CheckWorkspace(size_t bytes);
/// Refuses a call with too many sequences, before memory is taken for them. The number of tasks is limited, and each
/// sequence takes at least `tasks` of them. @param name  the size that gives the number of sequences: "q.shape[0]"
[[nodiscard]] Status CheckSequenceCount(ErrorText name, int64_t sequences, int64_t tasks);

/// Refuses a sequence of more keys than tiling::kMostKeys. @param name  the tensor of keys
[[nodiscard]] Status CheckKeyCount(const char* name, int64_t sequence, int64_t keys);

/// Binds a call and plans it. Makes an `Impl` from the context in use and the result of `bind`, or returns the first
/// error.
template <typename Impl, typename Bind>
Result<PlanFor<typename Impl::Args>> MakePlan(Context* context, Bind&& bind) {
  using Planned = PlanFor<typename Impl::Args>;
  return core::GuardedCall("the plan", [&]() -> Result<Planned> {
    Context& used = context != nullptr ? *context : Context::Default();
    FA_RETURN_IF_ERROR(core::ImplOf(used).status());
    auto bound = bind();
    if (!bound.ok()) return bound.status();
    try {
      auto impl = std::make_shared<const Impl>(used, std::move(bound).value());
      const Status status = CheckWorkspace(impl->workspace().total_bytes());
      return status.ok() ? Result<Planned>(Planned(std::move(impl))) : status;
    } catch (const tiling::PlanTooLarge& error) {
      return Status::OutOfMemory(error.what());
    }
  });
}

}  // namespace fa::ops

#endif  // FA_OPS_PLAN_MACHINE_H_
