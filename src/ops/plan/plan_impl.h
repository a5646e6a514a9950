#ifndef FA_OPS_PLAN_IMPL_H_
#define FA_OPS_PLAN_IMPL_H_

#include <cstddef>
#include <string>

#include "core/executor.h"
#include "fa/context.h"
#include "fa/plan.h"

namespace fa {

/// The implementation of a planned operator behind the public Plan. Immutable after construction.
class Plan::Impl {
 public:
  explicit Impl(Context& context) : context_(context) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Bytes that Run wants.
  [[nodiscard]] virtual size_t workspace_bytes() const = 0;
  [[nodiscard]] virtual PlanInfo info() const = 0;
  [[nodiscard]] virtual std::string Describe() const = 0;

  /// `args`: of the type that the plan is for. `workspace`: workspace_bytes(), 64-byte aligned.
  [[nodiscard]] virtual Status RunAny(const void* args, std::byte* workspace) const = 0;

  [[nodiscard]] Context& context() const { return context_; }
  /// Runs on the caller for a graph of one task, else on an executor of the context.
  [[nodiscard]] Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) const;

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
