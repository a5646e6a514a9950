#ifndef FA_OPS_QUANTIZED_PRODUCTS_H_
#define FA_OPS_QUANTIZED_PRODUCTS_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/strip.h"
#include "tiling/problem.h"

namespace fa::ops {

/// Packs queries of 8 bits, times their scales and QuantizedProducts::scale, into strip.panel. The rope part is also
/// multiplied by the scale of the keys.
/// @param memory  [width][d + d_rope] floats
void PackScaledQueries(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                       const core::kernels::RowFunctions& kernels, float* memory, const Strip& strip);

/// Multiplies n probabilities by QuantizedProducts::p_factor and rounds them to numbers of the type of V, i8 or f8e4m3:
/// to the nearest, ties to even, at most 127 or 448. A NaN is kept.
void RoundProbabilities(const QuantizedProducts& by, DType v, float* p, int64_t n);

}  // namespace fa::ops

#endif  // FA_OPS_QUANTIZED_PRODUCTS_H_
