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

namespace ops {

/// What runs the graph of a program.
class GraphRunner {
 public:
  [[nodiscard]] virtual Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task,
                                        std::byte* state) const = 0;

 protected:
  ~GraphRunner() = default;
};

}  // namespace ops

/// The implementation of a planned operator behind the public Plan. Immutable after construction.
class Plan::Impl : public ops::GraphRunner {
 public:
  explicit Impl(Context& context) : context_(context) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// The memory that Run needs.
  [[nodiscard]] virtual const tiling::WorkspacePlan& workspace() const = 0;
  /// The facts behind info() and Describe().
  [[nodiscard]] virtual tiling::PlanFacts Facts() const = 0;
  [[nodiscard]] virtual PlanInfo Info() const { return tiling::InfoOf(Facts(), workspace()); }

  /// `args` points to the type that the plan is for. `workspace` has workspace().total_bytes(), 64-byte aligned.
  [[nodiscard]] virtual Status RunAny(const void* args, std::byte* workspace) const = 0;
  /// Returns the error of a run that cannot begin. If other processes begin the same run, this tells them.
  [[nodiscard]] virtual Status CannotRun(const Status& why) const { return why; }
  /// Call it after a run that failed. It takes the workspace if somebody may still write to it.
  virtual void AfterError(Workspace& /*workspace*/) const noexcept {}

  [[nodiscard]] Context& context() const { return context_; }
  /// Runs a graph of one task on the caller, and other graphs on an executor of the context.
  [[nodiscard]] Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task,
                                std::byte* state) const final;

 private:
  Context& context_;
};

/// A plan for calls with `Args`. Only such an Impl makes a public PlanFor<Args>, so it gets arguments of that type.
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
