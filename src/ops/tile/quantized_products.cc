// Queries, keys and values of 8 bits are widened to f32, which changes no product of two of them. A row of queries is
// multiplied by its own scale when it is packed. So the scores come out scaled, and every pass of the forward serves.
#include "ops/tile/quantized_products.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "ops/tile/antiquant_rows.h"
#include "ops/tile/lane_array.h"

namespace fa::ops {
namespace {

using core::kernels::RowBlock;

/// Rounds a number that is at least 0 to the nearest integer.
float RoundToI8(float x) {
  constexpr float kLargest = 127, kRounder = 0x1.8p23f;  // the sum's last place is 1
  return (std::min(x, kLargest) + kRounder) - kRounder;
}

/// Rounds a number that is at least 0 to the nearest number of e4m3. Its last place is 2^-3 of the number's power of
/// two, and at least 2^-9.
float RoundToE4M3(float x) {
  constexpr float kLargest = 448;
  x = std::min(x, kLargest);
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7F800000u);
  const float rounder = std::max(power, 0x1p-6f) * 0x1p20f;
  return (x + rounder) - rounder;
}

}  // namespace

void PackScaledQueries(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                       const core::kernels::RowFunctions& kernels, float* memory, const Strip& strip) {
  const QuantizedProducts& by = rows.quantized;
  const StripRows& lanes = strip.lanes;
  const int64_t first_row = problem.sequences[static_cast<size_t>(lanes.sequence)].q_offset;
  float* rope_memory = memory + lanes.width * problem.d;
  LaneArray<const void*> q, q_rope;
  float numbers[2 * kMostNumbers];
  for (int64_t i = 0; i < lanes.count; ++i) {
    const int64_t head = lanes.head[i], row = first_row + lanes.row[i];
    const float factor = by.q_scale.At(lanes.sequence, head, row) * by.scale;
    float* to = memory + i * problem.d;
    q[i] = to;
    kernels.dequantize({rows.q.At(lanes.sequence, head, row), rows.q.rows.dtype, problem.d}, 1, problem.d,
                       {.scale = &factor}, to, problem.d);
    if (problem.d_rope == 0) continue;
    assert(!rows.k_antiquants.per_row && rows.k_antiquants.groups == 1);
    const int64_t head_kv = head / problem.group();
    const core::kernels::Antiquantization of_keys =
        ReadAntiquants(rows.k_antiquants, kernels, lanes.sequence, head_kv, {0, 1}, problem.d, numbers);
    const float rope_factor = factor * of_keys.scale[0];
    float* rope = rope_memory + i * problem.d_rope;
    q_rope[i] = rope;
    kernels.widen({rows.q_rope.At(lanes.sequence, head, row), rows.q_rope.rows.dtype, problem.d_rope}, 1,
                  problem.d_rope, rope, problem.d_rope);
    for (int64_t c = 0; c < problem.d_rope; ++c) rope[c] *= rope_factor;
  }
  const core::kernels::StripKernels& strip_kernels = *strip.kernels;
  strip_kernels.pack_queries({q, DType::kF32, lanes.count}, problem.d, 1, strip.panel);
  if (problem.d_rope == 0) return;
  strip_kernels.pack_queries({q_rope, DType::kF32, lanes.count}, problem.d_rope, 1,
                             strip.panel + strip_kernels.PanelRows(problem.d) * lanes.width);
}

void RoundProbabilities(const QuantizedProducts& by, DType v, float* p, int64_t n) {
  const float factor = by.p_factor;
  if (v == DType::kI8) {
    for (int64_t i = 0; i < n; ++i) p[i] = RoundToI8(p[i] * factor);
  } else {
    for (int64_t i = 0; i < n; ++i) p[i] = RoundToE4M3(p[i] * factor);
  }
}

}  // namespace fa::ops
