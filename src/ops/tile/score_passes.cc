#include "ops/tile/score_passes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/random.h"

namespace fa::ops {
namespace {

constexpr double kLog2E = 1.4426950408889634;
/// Keys whose mask or dropout bits are fetched at a time: one 32-bit word per lane.
constexpr int64_t kBitsPerWord = 32;

/// `n` <= 32 bits from bit `index` on, LSB first, without reading past the byte of the last one.
uint32_t LoadBits(const uint8_t* bytes, int64_t index, int64_t n) {
  const int64_t first = index >> 3, last = (index + n - 1) >> 3;
  uint64_t word = 0;
  std::memcpy(&word, bytes + first, static_cast<size_t>(last - first + 1));
  return static_cast<uint32_t>(word >> (index & 7));
}

int32_t SaturateToInt32(int64_t x) {
  // The kernel adds a key offset below 2^16; beyond 2^24 f32 rounds the distance anyway.
  constexpr int64_t kBound = std::numeric_limits<int32_t>::max() - (1 << 16);
  return static_cast<int32_t>(std::clamp(x, -kBound, kBound));
}

}  // namespace

ScoreScale::ScoreScale(const BoundAttention& bound, float scale) {
  const float magnitude = scale == 0 ? 1.0f : std::fabs(scale);
  const float sign = scale > 0 ? 1.0f : scale < 0 ? -1.0f : 0.0f;
  q_multiplier = sign;
  scale_first = bound.softcap > 0 || (bound.problem.dtype == DType::kI8 && bound.has_pse);
  const bool scale_in_exponent =
      !scale_first && !bound.has_slopes && (!bound.has_pse || bound.pse_type == PseType::kAddThenScale);
  cap_scale = magnitude;
  bias_pre = scale_first || scale_in_exponent ? 1.0f : magnitude;
  bias_post = scale_in_exponent ? sign : 1.0f;
  unit = scale_in_exponent ? magnitude : 1.0f;
  exp2_factor = static_cast<float>(unit * kLog2E);
}

void ScorePasses::Fetch(const StripRows& strip, tiling::Interval keys) const {
  constexpr int64_t kLine = 64;
  const auto fetch = [](const std::byte* row, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
  };
  if (bound_.has_pse && !bound_.pse.compressed) {
    const auto& rows = bound_.pse.sequences[static_cast<size_t>(strip.sequence)];
    const auto element = static_cast<int64_t>(SizeOf(bound_.pse.dtype));
    const auto* base = static_cast<const std::byte*>(args_.pse.data) + (rows.offset + keys.begin) * element;
    for (int64_t i = 0; i < strip.count; ++i) {
      fetch(base + (strip.head[i] * rows.head + strip.row[i] * rows.row) * element, keys.size() * element);
    }
  }
  if (bound_.has_dense_mask) {
    const auto* mask = static_cast<const std::byte*>(args_.dense_mask.data) + keys.begin;
    for (int64_t i = 0; i < strip.count; ++i) {
      fetch(mask + bound_.dense_mask.Offset(strip.sequence, strip.head[i], strip.row[i]), keys.size());
    }
  }
}

void ScorePasses::BiasAndCap(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                             int64_t keys, float* staging, float* capped, float* s) const {
  if (scale_.scale_first) {
    kernels.scale_scores(s, keys, scale_.cap_scale, bound_.softcap);
    if (capped != nullptr) std::memcpy(capped, s, sizeof(float) * static_cast<size_t>(keys * strip.width));
  }
  if (bound_.has_pse) AddPse(kernels, strip, key_begin, keys, staging, scale_.bias_pre, s);
  if (bound_.has_slopes) AddSlopes(kernels, strip, key_begin, keys, scale_.bias_pre, s);
}

void ScorePasses::AddPse(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                         int64_t keys, float* staging, float pre, float* s) const {
  const auto& rows = bound_.pse.sequences[static_cast<size_t>(strip.sequence)];
  const auto& sequence = bound_.problem.sequences[static_cast<size_t>(strip.sequence)];
  const auto element = static_cast<int64_t>(SizeOf(bound_.pse.dtype));
  const auto* base = static_cast<const std::byte*>(args_.pse.data) + rows.offset * element;
  const void* lanes[kMaxStripWidth];
  for (int64_t i = 0; i < strip.count; ++i) {
    const int64_t head = strip.head[i] * rows.head, row = strip.row[i];
    if (!bound_.pse.compressed) {
      lanes[i] = base + (head + row * rows.row + key_begin) * element;
      continue;
    }
    // The stored row may end before the strip's last key: keys after its end are masked, and read as 0.
    constexpr int64_t kStored = 1024;
    const bool last = row >= sequence.sq - kStored;
    const int64_t stored_row = last ? row - (sequence.sq - kStored) : row % kStored;
    const int64_t shift = last ? 0 : sequence.sk - kStored + stored_row - row;
    const int64_t from = key_begin + shift;
    const int64_t valid = std::clamp<int64_t>(sequence.sk - from, 0, keys);
    auto* staged = reinterpret_cast<std::byte*>(staging + i * keys);
    std::memcpy(staged, base + (head + stored_row * rows.row + from) * element, static_cast<size_t>(valid * element));
    std::memset(staged + valid * element, 0, static_cast<size_t>((keys - valid) * element));
    lanes[i] = staged;
  }
  kernels.add_bias(s, keys, pre, scale_.bias_post, {lanes, bound_.pse.dtype, strip.count});
}

void ScorePasses::Distances(const StripRows& strip, int64_t key_begin, int32_t* distance) const {
  const auto b = static_cast<size_t>(strip.sequence);
  const int64_t q_start = bound_.q_start.empty() ? 0 : bound_.q_start[b];
  const int64_t kv_start = bound_.kv_start.empty() ? 0 : bound_.kv_start[b];
  for (int64_t i = 0; i < strip.count; ++i) {
    distance[i] = SaturateToInt32((key_begin + kv_start) - (strip.row[i] + q_start));
  }
}

void ScorePasses::AddSlopes(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                            int64_t keys, float pre, float* s) const {
  const auto* slopes = static_cast<const float*>(args_.pse.data) + strip.sequence * bound_.slope_batch_stride;
  alignas(64) float slope[kMaxStripWidth] = {};
  alignas(64) int32_t distance[kMaxStripWidth] = {};
  for (int64_t i = 0; i < strip.count; ++i) slope[i] = slopes[strip.head[i]];
  Distances(strip, key_begin, distance);
  kernels.add_slopes(s, keys, pre, slope, distance, bound_.pse_type == PseType::kSlopesSqrt);
}

void ScorePasses::MaskInterval(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                               int64_t keys, float fill, float* s) const {
  const auto& rule = bound_.problem.sequences[static_cast<size_t>(strip.sequence)].rule;
  alignas(64) int32_t begin[kMaxStripWidth] = {};
  alignas(64) int32_t end[kMaxStripWidth] = {};
  for (int64_t i = 0; i < strip.count; ++i) {
    const tiling::Interval kept = rule.Keys(strip.row[i]);
    begin[i] = static_cast<int32_t>(std::clamp<int64_t>(kept.begin - key_begin, 0, keys));
    end[i] = static_cast<int32_t>(std::clamp<int64_t>(kept.end - key_begin, 0, keys));
  }
  kernels.mask_interval(s, keys, begin, end, fill);
}

void ScorePasses::MaskDense(const core::kernels::KernelTable& table, const core::kernels::StripKernels& kernels,
                            const StripRows& strip, int64_t key_begin, int64_t keys, float fill, float* s) const {
  const auto* mask = static_cast<const uint8_t*>(args_.dense_mask.data);
  alignas(64) uint32_t drop[kMaxStripWidth] = {};
  for (int64_t k = 0; k < keys; k += kBitsPerWord) {
    const int64_t n = std::min(kBitsPerWord, keys - k);
    uint32_t any = 0;
    for (int64_t i = 0; i < strip.count; ++i) {
      drop[i] = table.rows->non_zero_bytes(
          mask + bound_.dense_mask.Offset(strip.sequence, strip.head[i], strip.row[i]) + key_begin + k, n);
      any |= drop[i];
    }
    if (any != 0) kernels.mask_bits(s + k * strip.width, n, drop, fill);
  }
}

void ScorePasses::Dropout(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                          int64_t keys, float* p) const {
  const auto& sequence = bound_.problem.sequences[static_cast<size_t>(strip.sequence)];
  const int64_t base = bound_.dropout_offset[static_cast<size_t>(strip.sequence)];
  const uint64_t threshold = core::KeepThreshold(bound_.keep_prob);
  alignas(64) uint32_t keep[kMaxStripWidth] = {};
  for (int64_t k = 0; k < keys; k += kBitsPerWord) {
    const int64_t n = std::min(kBitsPerWord, keys - k);
    for (int64_t i = 0; i < strip.count; ++i) {
      const int64_t flat = base + (strip.head[i] * sequence.sq + strip.row[i]) * sequence.sk + key_begin + k;
      if (bound_.has_drop_mask) {
        keep[i] = LoadBits(static_cast<const uint8_t*>(args_.drop_mask.data), flat, n);
      } else {
        core::FillKeepBits(bound_.philox, threshold, static_cast<uint64_t>(flat), n, {&keep[i], 1}, kernels.isa);
      }
    }
    kernels.dropout(p + k * strip.width, n, keep, 1.0f / bound_.keep_prob);
  }
}

}  // namespace fa::ops
