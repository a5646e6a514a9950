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

  /// The arguments that it runs on, for the error that another operator's arguments get: "the forward, want
  /// AttentionArgs".
  [[nodiscard]] virtual const char* made_for() const = 0;

  /// `workspace`: workspace_bytes(), 64-byte aligned. A plan runs on the arguments of its own operator only, and
  /// overrides that one.
  [[nodiscard]] virtual Status Run(const AttentionArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const AttentionGradArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const PromptAttentionArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const DecodeAttentionArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const SparseAttentionArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const SparseAttentionGradArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const LightningIndexerArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const LightningIndexerGradArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const SparseIndexerLossArgs& args, std::byte* workspace) const;
  [[nodiscard]] virtual Status Run(const DenseIndexerLossArgs& args, std::byte* workspace) const;

  [[nodiscard]] Context& context() const { return context_; }
  /// Runs on the caller for a graph of one task, else on an executor of the context.
  [[nodiscard]] Status RunGraph(const core::TaskGraph& graph, core::TaskFunction run_task, std::byte* state) const;

 private:
  [[nodiscard]] Status MadeForAnother() const;

  Context& context_;
};

}  // namespace fa

#endif  // FA_OPS_PLAN_IMPL_H_
