#ifndef FA_OPS_FORWARD_PROGRAM_H_
#define FA_OPS_FORWARD_PROGRAM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "fa/context.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/dense/forward_tile.h"
#include "ops/plan/plan_impl.h"
#include "tiling/forward/forward_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// A bound forward with its plan and the layout of its workspace. The plans of forward operators hold this immutable
/// object.
class ForwardProgram {
 public:
  /// @param op  the operator's name in descriptions
  ForwardProgram(const char* op, const Context& context, BoundAttention bound);

  [[nodiscard]] const BoundAttention& bound() const { return bound_; }
  [[nodiscard]] const tiling::WorkspacePlan& workspace() const { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const;
  /// Adds a buffer of the operator to the layout of the workspace. @return the buffer's offset
  size_t Book(const char* name, size_t bytes) { return workspace_.Book(name, bytes); }
  /// Runs the forward on checked arguments.
  /// @param quantization  null if the output is of a float type
  [[nodiscard]] Status Run(const GraphRunner& runner, const ForwardRows& rows, std::byte* workspace,
                           const OutputQuantization* quantization = nullptr) const;

 private:
  [[nodiscard]] std::vector<std::string> KernelNames() const;
  [[nodiscard]] size_t ArrivalBytes() const { return static_cast<size_t>(plan_.merges) * sizeof(int32_t); }

  const char* op_;
  core::kernels::KernelTable table_;
  BoundAttention bound_;
  tiling::Machine machine_;
  tiling::ForwardPlan plan_;
  tiling::WorkspacePlan workspace_;
  ForwardBuffers buffers_;
};

}  // namespace fa::ops

#endif  // FA_OPS_FORWARD_PROGRAM_H_
