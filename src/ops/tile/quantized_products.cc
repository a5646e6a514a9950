// Queries, keys and values of 8 bits are widened to f32, which is exact, and the products are multiplied by the scales
// of query rows and of heads. Products of i8 are integers of at most 2^24 for heads of up to 1024 columns and parts of
// up to 1024 keys, so f32 adds them without rounding. Scales of rows or groups of keys multiply the widened keys.
#include "ops/tile/quantized_products.h"

#include <algorithm>
#include <bit>

#include "ops/tile/antiquant_rows.h"
#include "ops/tile/lane_array.h"

namespace fa::ops {
namespace {

using core::kernels::RowBlock;

/// Rounds a number that is at least 0 to the nearest integer.
float RoundToI8(float x) {
  constexpr float kLargest = 127, kRounder = 0x1.8p23f;  // a unit in the last place of x + kRounder is 1
  return (std::min(x, kLargest) + kRounder) - kRounder;
}

/// Rounds a number that is at least 0 to the nearest number of e4m3. The last place of the result is 2^-3 of its power
/// of two, and at least 2^-9.
float RoundToE4M3(float x) {
  constexpr float kLargest = 448;
  x = std::min(x, kLargest);
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7F800000u);
  const float rounder = std::max(power, 0x1p-6f) * 0x1p20f;
  return (x + rounder) - rounder;
}

}  // namespace

double ScaleOfHead(const QuantizedProducts& by, const Antiquants& of, const core::kernels::RowFunctions& kernels,
                   int64_t sequence, int64_t head_kv, int64_t columns) {
  if (!ScalesProducts(by, of)) return 1;
  float numbers[2 * kMostNumbers];
  return static_cast<double>(ReadAntiquants(of, kernels, sequence, head_kv, {0, 1}, columns, false, numbers).scale[0]);
}

void PackQueriesOf8Bits(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                        const core::kernels::RowFunctions& kernels, float* memory, const Strip& strip) {
  const StripRows& lanes = strip.lanes;
  const int64_t first_row = problem.sequences[static_cast<size_t>(lanes.sequence)].q_offset;
  float* rope_memory = memory + lanes.width * problem.d;
  LaneArray<const void*> q, q_rope;
  for (int64_t i = 0; i < lanes.count; ++i) {
    const int64_t head = lanes.head[i], row = first_row + lanes.row[i];
    float *to = memory + i * problem.d, *rope = rope_memory + i * problem.d_rope;
    q[i] = to;
    kernels.dequantize({rows.q.At(lanes.sequence, head, row), rows.q.rows.dtype, problem.d}, 1, problem.d,
                       {.scale = &kUnitScale}, to, problem.d);
    if (problem.d_rope == 0) continue;
    q_rope[i] = rope;
    kernels.widen({rows.q_rope.At(lanes.sequence, head, row), rows.q_rope.rows.dtype, problem.d_rope}, 1,
                  problem.d_rope, rope, problem.d_rope);
  }
  const core::kernels::StripKernels& strip_kernels = *strip.kernels;
  strip_kernels.pack_queries({q, DType::kF32, lanes.count}, problem.d, 1, strip.panel);
  if (problem.d_rope == 0) return;
  strip_kernels.pack_queries({q_rope, DType::kF32, lanes.count}, problem.d_rope, 1,
                             strip.panel + strip_kernels.PanelRows(problem.d) * lanes.width);
}

void ScaleScores(const tiling::AttentionProblem& problem, const ForwardRows& rows,
                 const core::kernels::RowFunctions& kernels, const Strip& strip, int64_t keys, float* s,
                 float* row_max) {
  const QuantizedProducts& by = rows.quantized;
  const StripRows& lanes = strip.lanes;
  const int64_t first_row = problem.sequences[static_cast<size_t>(lanes.sequence)].q_offset;
  LaneArray<float> factor = {}, largest;
  for (int64_t i = 0; i < lanes.count; ++i) {
    const int64_t head = lanes.head[i];
    const double of_keys =
        ScaleOfHead(by, rows.k_antiquants, kernels, lanes.sequence, head / problem.group(), problem.d);
    const auto of_row = static_cast<double>(by.q_scale.At(lanes.sequence, head, first_row + lanes.row[i]));
    factor[i] = static_cast<float>(of_row * static_cast<double>(by.scale) * of_keys);
  }
  std::fill_n(largest.data(), lanes.width, core::kernels::kMaskedScore);
  for (int64_t key = 0; key < keys; ++key, s += lanes.width) {
    for (int64_t i = 0; i < lanes.width; ++i) {
      const float score = s[i] == core::kernels::kMaskedScore ? s[i] : s[i] * factor[i];
      s[i] = score;
      largest[i] = largest[i] < score ? score : largest[i];
    }
  }
  std::copy_n(largest.data(), lanes.width, row_max);
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
