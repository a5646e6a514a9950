#ifndef FA_OPS_DENSE_BACKWARD_PROGRAM_H_
#define FA_OPS_DENSE_BACKWARD_PROGRAM_H_

#include <cstddef>

#include "core/kernels/kernel_types.h"
#include "fa/context.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "ops/plan/plan_impl.h"
#include "tiling/backward/backward_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// A bound backward with its plan and the layout of its workspace. The plans of backward operators hold this immutable
/// object.
class BackwardProgram {
 public:
  BackwardProgram(const Context& context, BoundAttentionGrad bound);

  [[nodiscard]] const BoundAttentionGrad& bound() const { return bound_; }
  [[nodiscard]] const tiling::WorkspacePlan& workspace() const { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const;
  [[nodiscard]] const BackwardBuffers& buffers() const { return buffers_; }
  /// Adds a buffer of the operator to the layout of the workspace. @return the buffer's offset
  size_t Book(const char* name, size_t bytes) { return workspace_.Book(name, bytes); }
  /// Runs the backward on checked arguments. Run computes all gradients except sums over rows, keys or the batch.
  [[nodiscard]] Status Run(const GraphRunner& runner, const GradRows& rows, std::byte* workspace) const;
  /// Writes, after Run, the gradients that are sums over rows, keys or the batch: dsink, dslopes, and a shared dpse.
  void WriteSums(const GradRows& rows, std::byte* workspace) const;

 private:
  BoundAttentionGrad bound_;
  const core::kernels::KernelTable& table_;
  tiling::Machine machine_;
  tiling::BackwardPlan plan_;
  tiling::WorkspacePlan workspace_;
  BackwardBuffers buffers_;
};

}  // namespace fa::ops

#endif  // FA_OPS_DENSE_BACKWARD_PROGRAM_H_
