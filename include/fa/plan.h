#ifndef FA_PLAN_H_
#define FA_PLAN_H_

/// @file
/// Plans, which validate and tile a call once and run it often.
/// @code{.cpp}
/// std::vector<float> q(8 * 128 * 64), out(q);
/// fa::AttentionArgs args;
/// args.q = args.k = args.v = fa::View(q.data(), {1, 8, 128, 64});
/// args.out = fa::View(out.data(), {1, 8, 128, 64});
/// const auto plan = fa::PlanFlashAttention(args, {.mask = fa::Mask::Causal()});
/// if (!plan.ok()) return plan.status();
/// std::puts(plan->Describe().c_str());
/// fa::Workspace workspace;
/// return plan->Run(args, workspace);
/// @endcode

#include <concepts>
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

/// What the plans of all operators have in common. Copies of a plan share one object.
class FA_API Plan {
 public:
  class Impl;
  template <typename Args>
  class ImplFor;

  /// Returns the bytes of workspace that Run needs.
  [[nodiscard]] size_t workspace_bytes() const;
  [[nodiscard]] PlanInfo info() const;
  /// Returns a description: sizes, mask, kernels, tile shape and why, tasks, FLOPs, memory, load of each worker.
  [[nodiscard]] std::string Describe() const;

 private:
  template <typename Args>
  friend class PlanFor;
  explicit Plan(std::shared_ptr<const Impl> impl);

  // `args` must point to the Args of the operator. PlanFor ensures it.
  Status RunAny(const void* args, Workspace& workspace) const;
  Status RunAny(const void* args, std::span<std::byte> workspace) const;
  Status RunAny(const void* args) const;

  std::shared_ptr<const Impl> impl_;
};

/// True if `Extended` is derived from `Args`, so it has all tensors of `Args` and may have more.
template <typename Extended, typename Args>
concept Extends = std::derived_from<Extended, Args> && !std::same_as<Extended, Args>;

/// A validated call of the operator that takes `Args`: it is cut into tiles, and its workspace is laid out. The plan is
/// a pure function of shapes, options and context. The operator's function PlanX makes the plan once, and Run may run
/// it often. The plan is immutable: many threads may call Run at once, each with its own Workspace. The context must
/// outlive the plan. Code that runs a plan on another operator's tensors does not compile.
///
/// PlanX never reads the memory of tensors, so a plan may precede their allocation. A required tensor may then have
/// null data. An optional tensor is planned if its data is not null.
template <typename Args>
class PlanFor : public Plan {
 public:
  explicit PlanFor(std::shared_ptr<const ImplFor<Args>> impl) : Plan(std::move(impl)) {}

  /// Runs the call on tensors of exactly the planned shapes, strides, types and lengths. From the second call with the
  /// same workspace on, Run allocates nothing.
  /// @return kInvalidArgument if a tensor differs from the plan, has null data, or is an output that overlaps another
  /// tensor; kOutOfMemory if an allocation fails
  Status Run(const Args& args, Workspace& workspace) const { return RunAny(&args, workspace); }
  /// Runs the call with its workspace in the caller's memory, which has at least workspace_bytes() and is 64-byte
  /// aligned.
  Status Run(const Args& args, std::span<std::byte> workspace) const { return RunAny(&args, workspace); }
  /// Runs the call with a workspace from the context's pool.
  Status Run(const Args& args) const { return RunAny(&args); }
  /// Deleted, so that a plan refuses the tensors of an operator whose arguments extend `Args`.
  template <Extends<Args> Extended, typename... Memory>
  Status Run(const Extended& args, Memory&&... workspace) const = delete;
};

/// Returns the plan without its operator's type, or the status that says why there is no plan.
template <typename Args>
[[nodiscard]] Result<Plan> AnyPlan(const Result<PlanFor<Args>>& plan) {
  return plan.ok() ? Result<Plan>(*plan) : plan.status();
}

}  // namespace fa

#endif  // FA_PLAN_H_
