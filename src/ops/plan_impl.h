#ifndef FA_OPS_PLAN_IMPL_H_
#define FA_OPS_PLAN_IMPL_H_

#include <cstddef>
#include <string>

#include "fa/context.h"
#include "fa/plan.h"

namespace fa {

/// What a planned operator is below the public Plan. Immutable after construction.
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

  /// `workspace`: workspace_bytes(), 64-byte aligned.
  [[nodiscard]] virtual Status Run(const AttentionArgs& args, std::byte* workspace) const = 0;

  [[nodiscard]] Context& context() const { return context_; }

 private:
  Context& context_;
};

}  // namespace fa

#endif  // FA_OPS_PLAN_IMPL_H_
