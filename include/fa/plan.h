#ifndef FA_PLAN_H_
#define FA_PLAN_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan_info.h"
#include "fa/status.h"
#include "fa/workspace.h"

namespace fa {

/// What a plan says of itself, whatever its operator. A handle: copies share the plan.
class FA_API Plan {
 public:
  class Impl;
  template <typename Args>
  class ImplFor;

  /// Bytes that Run wants.
  [[nodiscard]] size_t workspace_bytes() const;
  [[nodiscard]] PlanInfo info() const;
  /// The plan in words: kernels, tile shape and why, tasks, FLOPs, memory, load of each worker.
  [[nodiscard]] std::string Describe() const;

 private:
  template <typename Args>
  friend class PlanFor;
  explicit Plan(std::shared_ptr<const Impl> impl);

  // `args`: of the operator's type, which PlanFor knows.
  Status RunAny(const void* args, Workspace& workspace) const;
  Status RunAny(const void* args, std::span<std::byte> workspace) const;
  Status RunAny(const void* args) const;

  std::shared_ptr<const Impl> impl_;
};

/// A validated call of the operator that takes `Args`, tiled and booked: a pure function of shapes, options and
/// context, made once by the operator's PlanX and run often. Immutable; Run is const and may be called from many
/// threads at once, each call with its own Workspace. The context it was made with must outlive it. To run a plan on
/// another operator's tensors does not compile.
template <typename Args>
class PlanFor : public Plan {
 public:
  explicit PlanFor(std::shared_ptr<const ImplFor<Args>> impl) : Plan(std::move(impl)) {}

  /// Runs on tensors of exactly the planned shapes, strides, types and lengths. Allocates nothing from the second call
  /// with the same workspace on.
  /// @return kInvalidArgument (a tensor differs from the plan, null data, overlapping output), kOutOfMemory
  Status Run(const Args& args, Workspace& workspace) const { return RunAny(&args, workspace); }
  /// As above, in memory of the caller's: workspace_bytes(), 64-byte aligned.
  Status Run(const Args& args, std::span<std::byte> workspace) const { return RunAny(&args, workspace); }
  /// As above, with a workspace of the context's pool.
  Status Run(const Args& args) const { return RunAny(&args); }
};

/// The plan as one of any operator, or why there is none.
template <typename Args>
[[nodiscard]] Result<Plan> AnyPlan(const Result<PlanFor<Args>>& plan) {
  return plan.ok() ? Result<Plan>(*plan) : plan.status();
}

}  // namespace fa

#endif  // FA_PLAN_H_
