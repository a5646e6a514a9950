#ifndef FA_OPS_INT8_PROGRAM_H_
#define FA_OPS_INT8_PROGRAM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fa/context.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/inference/int8_tile.h"
#include "ops/plan/plan_impl.h"
#include "tiling/forward/forward_plan.h"
#include "tiling/plan_facts.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// A bound forward of int8 operands with its plan and the layout of its workspace, like ForwardProgram. An object is
/// immutable.
class Int8Program {
 public:
  Int8Program(const char* op, const Context& context, BoundAttention bound);

  [[nodiscard]] const BoundAttention& bound() const { return bound_; }
  [[nodiscard]] const tiling::WorkspacePlan& workspace() const { return workspace_; }
  [[nodiscard]] tiling::PlanFacts Facts() const;
  /// Adds a buffer of the operator to the layout of the workspace. @return the buffer's offset
  size_t Book(const char* name, size_t bytes) { return workspace_.Book(name, bytes); }
  /// Runs the forward on checked arguments, as a graph of `plan`.
  /// @param quantization  null if the output is of a float type
  [[nodiscard]] Status Run(const Plan::Impl& plan, ForwardRows rows, const ProductScales& scales,
                           const OutputQuantization* quantization, std::byte* workspace) const;

 private:
  [[nodiscard]] std::vector<std::string> KernelNames() const;

  const char* op_;
  BoundAttention bound_;
  Int8Kernels kernels_;
  tiling::Machine machine_;
  tiling::ForwardPlan plan_;
  tiling::WorkspacePlan workspace_;
  Int8Buffers buffers_;
};

}  // namespace fa::ops

#endif  // FA_OPS_INT8_PROGRAM_H_
