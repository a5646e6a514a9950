#ifndef FA_OPS_GRADIENT_SUMS_H_
#define FA_OPS_GRADIENT_SUMS_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "layout/rows_view.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/dense/backward_buffers.h"
#include "tiling/problem.h"

namespace fa::ops {

/// Returns `sum` plus the gradient of a head's sink in a sequence. Rows are added one by one, in their order, in
/// double. So several calls for consecutive rows give the same sum as one call.
/// @param delta  one value per row of the sequence and head, in order
[[nodiscard]] double AddSinkRows(const GradRows& rows, float sink, const tiling::Sequence& sequence, int64_t b,
                                 int64_t head, const float* delta, double sum);
/// Returns the gradient of the sink of row i of a sequence.
[[nodiscard]] double SinkGradient(const GradRows& rows, float sink, const tiling::Sequence& sequence, int64_t b,
                                  int64_t head, int64_t i, float delta);
/// Returns `sum` plus the gradient of a head's slope in a sequence. Rows are added one by one, in their order.
/// @param slope_rows  `count` values, one per row
[[nodiscard]] double AddSlopeRows(const float* slope_rows, int64_t count, double sum);

/// Rounds `count` f32 values to the type of dpse and writes them to row i of head n.
void WriteBiasRow(const core::kernels::KernelTable& table, const layout::MutableRowsView& dpse, int64_t n, int64_t i,
                  const float* from, int64_t count);

/// The sizes of a bias in one batch element.
struct PairSizes {
  int64_t heads = 0, rows = 0, keys = 0;
};
/// Rounds sums over the batch into the gradient of a bias that the batch shares.
/// @param pairs  the sums [heads][rows][keys]
/// @param dpse   the gradient's rows of batch element 0
void WritePairBias(const core::kernels::KernelTable& table, const PairSizes& sizes, const float* pairs,
                   const layout::MutableRowsView& dpse);

/// Clears the sums to which the tiles of a run add. Must be called before the graph runs.
void ClearGradientSums(const tiling::AttentionProblem& problem, const BackwardBuffers& buffers, std::byte* workspace);

/// Computes dsink, dslopes and, if rows or the batch share a bias, dpse from the tiles' sums. Batch elements and rows
/// are added in ascending order. Must be called after the graph has run.
void WriteGradientSums(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table,
                       const GradRows& rows, const BackwardBuffers& buffers, std::byte* workspace);

/// Writes 0 to the gradient of a bias whose batch is empty.
void ClearBiasGradient(const MutableTensorView& dpse);

/// Writes 0 to dq, dk, dv and their rope parts in TND rows that belong to no sequence.
void WriteTailGradients(const tiling::AttentionProblem& problem, const GradRows& rows);

}  // namespace fa::ops

#endif  // FA_OPS_GRADIENT_SUMS_H_
