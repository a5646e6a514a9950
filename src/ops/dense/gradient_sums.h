#ifndef FA_OPS_GRADIENT_SUMS_H_
#define FA_OPS_GRADIENT_SUMS_H_

#include "core/kernels/kernel_types.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"

namespace fa::ops {

/// Clears the sums that every tile of a run adds to. Call it before the graph runs.
void ClearGradientSums(const BoundAttentionGrad& bound, const BackwardBuffers& buffers, std::byte* workspace);

/// Computes dsink, dslopes and the shared forms of dpse from the sums of rows and keys, in ascending b and i. Call it
/// after the graph has run.
void WriteGradientSums(const BoundAttentionGrad& bound, const core::kernels::KernelTable& table,
                       const AttentionGradArgs& args, const BackwardBuffers& buffers, std::byte* workspace);

/// Writes 0 to TND rows that no sequence owns, in dq (dq_rope) and in dk, dv (dk_rope).
void WriteTailGradients(const BoundAttentionGrad& bound, const AttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_GRADIENT_SUMS_H_
