#ifndef FA_OPS_PLAN_IMPL_H_
#define FA_OPS_PLAN_IMPL_H_

#include <cstddef>

#include "core/run/executor.h"
#include "fa/context.h"
#include "fa/plan.h"
#include "fa/workspace.h"
#include "tiling/plan_facts.h"
#include "tiling/workspace_plan.h"

namespace fa {

/// The implementation of a planned operator behind the public Plan. Immutable after construction.
class Plan::Impl {
 public:
  explicit Impl(Context& context) : context_(context) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What Run wants of memory.
  [[nodiscard]] virtual const tiling::WorkspacePlan& workspace() const = 0;
  /// What info() and Describe() are made of.
  [[nodiscard]] virtual tiling::PlanFacts Facts() const = 0;

  /// `args`: of the type that the plan is for. `workspace`: workspace().total_bytes(), 64-byte aligned.
  [[nodiscard]] virtual Status RunAny(const void* args, std::byte* workspace) const = 0;
  /// What a run returns that cannot begin: where other ranks begin the same run, they are told.
  [[nodiscard]] virtual Status CannotRun(const Status& why) const { return why; }
  /// After a run that failed: takes the workspace if somebody may still write to it.
  virtual void AfterError(Workspace& /*workspace*/) const noexcept {}

  [[nodiscard]] Context& context() const { return context_; }
  /// Runs on the caller for a graph of one task without gates, else on an executor of the context.
  /// @param gates  polled on the caller meanwhile; null: nothing is
  [[nodiscard]] virtual Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state,
                                        core::ArrivalGates* gates = nullptr) const;

 private:
  Context& context_;
};

/// One that runs on `Args`. The public PlanFor<Args> is made of it alone, so the arguments it gets are of that type.
template <typename ArgsOfCall>
class Plan::ImplFor : public Plan::Impl {
 public:
  using Args = ArgsOfCall;
  using Impl::Impl;

  [[nodiscard]] virtual Status Run(const Args& args, std::byte* workspace) const = 0;

 private:
  [[nodiscard]] Status RunAny(const void* args, std::byte* workspace) const final {
    return Run(*static_cast<const Args*>(args), workspace);
  }
};

}  // namespace fa

#endif  // FA_OPS_PLAN_IMPL_H_
