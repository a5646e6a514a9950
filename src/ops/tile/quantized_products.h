#ifndef FA_OPS_QUANTIZED_PRODUCTS_H_
#define FA_OPS_QUANTIZED_PRODUCTS_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/strip.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The scale with which rows are widened if ScalesProducts is true.
inline constexpr float kUnitScale = 1;

/// Returns whether the scale of a head of keys or values multiplies the products. If not, scales multiply the rows when
/// the rows are widened.
[[nodiscard]] inline bool ScalesProducts(const QuantizedProducts& by, const Antiquants& of) {
  return by.used() && !of.per_row && of.groups == 1;
}
/// Returns the scale of a head if ScalesProducts is true, otherwise 1.
/// @param columns  the number of columns of the head
[[nodiscard]] double ScaleOfHead(const QuantizedProducts& by, const Antiquants& of,
                                 const core::kernels::RowFunctions& kernels, int64_t sequence, int64_t head_kv,
                                 int64_t columns);

/// Widens 8-bit queries to f32 without multiplying by their scales, and packs them and their rope part into
/// strip.panel.
/// @param memory  [width][d + d_rope] floats
void PackQueriesOf8Bits(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                        const core::kernels::RowFunctions& kernels, float* memory, const Strip& strip);

/// Multiplies scores [keys][width] by the scales of their rows and heads and by QuantizedProducts::scale. Masked scores
/// remain masked.
/// @param row_max  receives the largest score of each lane
void ScaleScores(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                 const core::kernels::RowFunctions& kernels, const Strip& strip, int64_t keys, float* s,
                 float* row_max);

/// Multiplies n probabilities by QuantizedProducts::p_factor and rounds them to numbers of the type of V, i8 or f8e4m3:
/// to the nearest, ties to even, at most 127 or 448. A NaN is kept.
void RoundProbabilities(const QuantizedProducts& by, DType v, float* p, int64_t n);

}  // namespace fa::ops

#endif  // FA_OPS_QUANTIZED_PRODUCTS_H_
