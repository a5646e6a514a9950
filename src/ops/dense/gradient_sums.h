#ifndef FA_OPS_GRADIENT_SUMS_H_
#define FA_OPS_GRADIENT_SUMS_H_

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"

namespace fa::ops {

/// Clears the sums that every tile of a run adds to. Call it before the graph runs.
void ClearGradientSums(const tiling::AttentionProblem& problem, const BackwardBuffers& buffers, std::byte* workspace);

/// Computes dsink, dslopes and the shared forms of dpse from the sums of rows and keys, in ascending b and i. Call it
/// after the graph has run.
void WriteGradientSums(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                       const GradRows& rows, const BackwardBuffers& buffers, std::byte* workspace);

/// Writes 0 to the gradient of a bias whose batch is empty: a sum of nothing.
void ClearBiasGradient(const MutableTensorView& dpse);

/// Writes 0 to TND rows that no sequence owns, in dq (dq_rope) and in dk, dv (dk_rope).
void WriteTailGradients(const tiling::AttentionProblem& problem, const GradRows& rows);

}  // namespace fa::ops

#endif  // FA_OPS_GRADIENT_SUMS_H_
