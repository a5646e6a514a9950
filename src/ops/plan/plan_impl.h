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

/// The interface through which an operator's program runs its task graph.
class GraphRunner {
 public:
  [[nodiscard]] virtual Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task,
                                        std::byte* state) const = 0;

 protected:
  ~GraphRunner() = default;
};

}  // namespace ops

/// The implementation of a planned operator behind the public Plan. An object is immutable after its construction.
class Plan::Impl : public ops::GraphRunner {
 public:
  explicit Impl(Context& context) : context_(context) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Returns the layout of the memory that Run needs.
  [[nodiscard]] virtual const tiling::WorkspacePlan& workspace() const = 0;
  /// Returns the data that info() and Describe() show.
  [[nodiscard]] virtual tiling::PlanFacts Facts() const = 0;
  [[nodiscard]] virtual PlanInfo Info() const { return tiling::InfoOf(Facts(), workspace()); }

  /// Runs the plan. `args` points to arguments of the type that the plan is for. `workspace` has
  /// workspace().total_bytes() bytes and is 64-byte aligned.
  [[nodiscard]] virtual Status RunAny(const void* args, std::byte* workspace) const = 0;
  /// Returns the error of a run that cannot begin. If other processes take part in the run, tells them of the error.
  [[nodiscard]] virtual Status CannotRun(const Status& why) const { return why; }
  /// Must be called after a run that failed. Takes the workspace away from the caller if another process may still
  /// write to it.
  virtual void AfterError(Workspace& /*workspace*/) const noexcept {}

  [[nodiscard]] Context& context() const { return context_; }
  /// Runs a graph of one task on the calling thread, and any other graph on an executor of the context.
  [[nodiscard]] Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task,
                                std::byte* state) const final;

 private:
  Context& context_;
};

/// The implementation of a plan for calls with `Args`. A PlanFor<Args> is made only from this class, so RunAny gets
/// arguments of the right type.
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
