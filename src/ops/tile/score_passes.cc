#include "ops/tile/score_passes.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "core/integer.h"
#include "core/random.h"

namespace fa::ops {
namespace {

using core::kernels::kKeepBits;

/// Loads `n` <= 32 bits, beginning with bit `index`, least significant bit first. The function reads no byte past the
/// byte of the last bit.
uint32_t LoadBits(const uint8_t* bytes, int64_t index, int64_t n) {
  assert(index >= 0 && n > 0 && n <= 32);
  const int64_t first = index >> 3, last = (index + n - 1) >> 3;
  if (n == 32 && last - first == 3) {  // true for most words; a copy of unknown length would take ten times as long
    uint32_t word;
    std::memcpy(&word, bytes + first, sizeof word);
    return word;
  }
  uint64_t word = 0;
  std::memcpy(&word, bytes + first, static_cast<size_t>(last - first + 1));
  return static_cast<uint32_t>(word >> (index & 7));
}

int32_t SaturateToInt32(int64_t x) {
  // Distances are clamped to this bound, so that the kernel can add a key offset below 2^16. Beyond 2^24, f32 rounds
  // the distance anyway.
  constexpr int64_t kBound = std::numeric_limits<int32_t>::max() - (1 << 16);
  return static_cast<int32_t>(std::clamp(x, -kBound, kBound));
}

}  // namespace

ScoreScale::ScoreScale(DType dtype, const ScoreInputs& inputs) {
  const float scale = inputs.scale;
  const float magnitude = scale == 0 ? 1.0f : std::fabs(scale);
  const float sign = scale > 0 ? 1.0f : scale < 0 ? -1.0f : 0.0f;
  q_multiplier = sign;
  scale_first = inputs.caps() || (dtype == DType::kI8 && inputs.has_pse());
  const bool scale_in_exponent =
      !scale_first && !inputs.has_slopes() && (!inputs.has_pse() || inputs.pse_type == PseType::kAddThenScale);
  cap_scale = magnitude;
  bias_pre = scale_first || scale_in_exponent ? 1.0f : magnitude;
  bias_post = scale_in_exponent ? sign : 1.0f;
  unit = scale_in_exponent ? magnitude : 1.0f;
  exp2_factor = static_cast<float>(unit * std::numbers::log2e);
}

void ScorePasses::Locate(const StripRows& strip, PassRows& rows) const {
  const auto locate = [&](const layout::RowsView& tensor, LaneArray<const std::byte*>& to) {
    for (int64_t i = 0; i < strip.count; ++i) to[i] = tensor.At(0, strip.head[i], strip.row[i]);
  };
  if (reads_pse()) locate(inputs_.pse.Of(strip.sequence), rows.pse);
  if (inputs_.has_mask_tiles()) {
    for (int64_t i = 0; i < strip.count; ++i) {
      rows.tile_row[i] = inputs_.mask_tiles.TileRow(strip.sequence, strip.head[i], strip.row[i]);
      rows.row_in_tile[i] = inputs_.mask_tiles.RowInTile(strip.row[i]);
    }
  } else if (inputs_.has_dense_mask()) {
    locate(inputs_.dense_mask.Of(strip.sequence), rows.dense_mask);
  }
}

void ScorePasses::ListRows(const StripRows& strip, const PassRows& rows, tiling::Interval keys, FetchRuns& runs) const {
  if (!reads_pse()) return;
  const auto element = static_cast<int64_t>(SizeOf(inputs_.pse.Of(strip.sequence).rows.dtype));
  for (int64_t i = 0; i < strip.count; ++i) {
    if (i > 0 && rows.pse[i] == rows.pse[i - 1]) continue;  // rows or heads may share one row of pse
    runs.AddLines(rows.pse[i] + keys.begin * element, keys.size() * element);
  }
}

void ScorePasses::BiasAndCap(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
                             int64_t key_begin, int64_t keys, float* staging, float* capped, float* s,
                             float* row_max) const {
  const bool has_pse = inputs_.has_pse(), has_slopes = inputs_.has_slopes();
  if (scale_.scale_first) {
    kernels.passes.scale_scores(s, keys, scale_.cap_scale, inputs_.softcap, has_pse || has_slopes ? nullptr : row_max);
    if (capped != nullptr) std::memcpy(capped, s, sizeof(float) * static_cast<size_t>(keys * strip.width));
  }
  if (has_pse) AddPse(kernels, strip, rows, key_begin, keys, staging, s, has_slopes ? nullptr : row_max);
  if (has_slopes) AddSlopes(kernels, strip, key_begin, keys, s, row_max);
}

void ScorePasses::AddPse(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
                         int64_t key_begin, int64_t keys, float* staging, float* s, float* row_max) const {
  const layout::RowsView pse = inputs_.pse.Of(strip.sequence);
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.sequence)];
  const auto element = static_cast<int64_t>(SizeOf(pse.rows.dtype));
  const bool compressed = inputs_.compressed_pse;
  // Rows of a strip count from the first row of their part, but rule.sq counts all rows of the sequence.
  const int64_t first_row = inputs_.q_start.empty() ? 0 : inputs_.q_start[static_cast<size_t>(strip.sequence)];
  LaneArray<const void*> lanes;
  for (int64_t i = 0; i < strip.count; ++i) {
    if (!compressed) {
      lanes[i] = rows.pse[i] + key_begin * element;
      continue;
    }
    // The stored row may end before the strip's last key. Keys after the end of the stored row are masked, and are read
    // as 0.
    constexpr int64_t kStored = 1024;
    const int64_t row = first_row + strip.row[i];
    const bool last = row >= sequence.rule.sq - kStored;
    const int64_t stored_row = last ? row - (sequence.rule.sq - kStored) : row % kStored;
    const int64_t shift = last ? 0 : sequence.sk - kStored + stored_row - row;
    const int64_t from = key_begin + shift;
    const int64_t valid = std::clamp<int64_t>(sequence.sk - from, 0, keys);
    assert(stored_row >= 0 && stored_row < kStored && from >= 0 && staging != nullptr);
    auto* staged = reinterpret_cast<std::byte*>(staging + i * keys);
    std::memcpy(staged, pse.At(0, strip.head[i], stored_row, from), static_cast<size_t>(valid * element));
    std::memset(staged + valid * element, 0, static_cast<size_t>((keys - valid) * element));
    lanes[i] = staged;
  }
  kernels.passes.add_bias(s, keys, scale_.bias_pre, scale_.bias_post, {lanes, pse.rows.dtype, strip.count}, row_max);
}

void ScorePasses::Distances(const StripRows& strip, int64_t key_begin, int32_t* distance) const {
  const auto b = static_cast<size_t>(strip.sequence);
  const int64_t q_start = inputs_.q_start.empty() ? 0 : inputs_.q_start[b];
  const int64_t kv_start = inputs_.kv_start.empty() ? 0 : inputs_.kv_start[b];
  for (int64_t i = 0; i < strip.count; ++i) {
    distance[i] = SaturateToInt32((key_begin + kv_start) - (strip.row[i] + q_start));
  }
}

void ScorePasses::AddSlopes(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                            int64_t keys, float* s, float* row_max) const {
  LaneArray<float> slope = {};
  LaneArray<int32_t> distance = {};
  const layout::RowsView slopes = inputs_.slopes.Of(strip.sequence);
  for (int64_t i = 0; i < strip.count; ++i) {
    std::memcpy(&slope[i], slopes.At(0, strip.head[i], 0), sizeof(float));
  }
  Distances(strip, key_begin, distance);
  kernels.passes.add_slopes(s, keys, scale_.bias_pre, slope, distance, inputs_.pse_type == PseType::kSlopesSqrt,
                            row_max);
}

void ScorePasses::MaskInterval(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin,
                               int64_t keys, float fill, float* s) const {
  const auto& rule = problem_.sequences[static_cast<size_t>(strip.sequence)].rule;
  assert(key_begin >= 0 && key_begin + keys <= rule.sk);
  LaneArray<int32_t> begin = {};
  LaneArray<int32_t> end = {};
  for (int64_t i = 0; i < strip.count; ++i) {
    const tiling::Interval kept = rule.Keys(strip.row[i]);
    begin[i] = static_cast<int32_t>(std::clamp<int64_t>(kept.begin - key_begin, 0, keys));
    end[i] = static_cast<int32_t>(std::clamp<int64_t>(kept.end - key_begin, 0, keys));
  }
  kernels.passes.mask_interval(s, keys, begin, end, fill);
}

template <typename Take>
void ScorePasses::TakeWords(const StripRows& strip, const PassRows& rows, tiling::Interval keys,
                            const Take& take) const {
  constexpr int64_t kWordBits = PairTileLayout::kWordBits;
  const int64_t first = keys.begin / kWordBits, shift = keys.begin % kWordBits;
  const bool spans_two = shift + keys.size() > kWordBits;
  const uint64_t inside = LowBits(keys.size());
  int64_t tile_row = -1;
  PairTiles::Column low = {}, high = {};
  for (int64_t i = 0; i < strip.count; ++i) {
    if (rows.tile_row[i] != tile_row) {
      tile_row = rows.tile_row[i];
      low = inputs_.mask_tiles.Words(tile_row, first);
      if (spans_two) high = inputs_.mask_tiles.Words(tile_row, first + 1);
    }
    const int64_t row = rows.row_in_tile[i];
    uint64_t word = low.words[row * low.stride] >> shift;
    if (spans_two) word |= high.words[row * high.stride] << (kWordBits - shift);
    if (!take(i, word & inside)) return;
  }
}

bool ScorePasses::LoadDropped(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
                              tiling::Interval keys, DroppedPairs& dropped) const {
  assert(!keys.empty() && keys.size() <= DroppedPairs::kKeys);
  uint32_t* words = dropped.words_;
  if (!inputs_.has_mask_tiles()) {
    LaneArray<const void*> lanes;
    for (int64_t i = 0; i < strip.count; ++i) lanes[i] = rows.dense_mask[i] + keys.begin;
    return kernels.passes.drop_words({lanes, DType::kU8, strip.count}, keys.size(), words);
  }
  uint64_t any = 0;
  TakeWords(strip, rows, keys, [&](int64_t lane, uint64_t word) {
    any |= word;
    words[lane] = static_cast<uint32_t>(word);
    words[strip.width + lane] = static_cast<uint32_t>(word >> 32);
    return true;
  });
  for (int64_t i = strip.count; i < strip.width; ++i) words[i] = words[strip.width + i] = 0;
  return any != 0;
}

void ScorePasses::MaskDropped(const core::kernels::StripKernels& kernels, const DroppedPairs& dropped, int64_t keys,
                              float fill, float* s, float* row_max) {
  kernels.passes.mask_words(s, keys, dropped.words_, fill, row_max);
}

void ScorePasses::MaskDense(const core::kernels::StripKernels& kernels, const StripRows& strip, tiling::Interval keys,
                            float fill, float* s) const {
  if (!inputs_.has_dense_mask()) return;
  PassRows rows;
  Locate(strip, rows);
  DroppedPairs dropped;
  for (tiling::Interval part = keys; !(part.end = std::min(part.begin + DroppedPairs::kKeys, keys.end), part.empty());
       part.begin = part.end) {
    if (!LoadDropped(kernels, strip, rows, part, dropped)) continue;
    MaskDropped(kernels, dropped, part.size(), fill, s + (part.begin - keys.begin) * strip.width, nullptr);
  }
}

tiling::Interval ScorePasses::KeptKeys(const core::kernels::StripKernels& kernels, const StripRows& strip,
                                       tiling::Interval keys) const {
  if (!inputs_.has_dense_mask() || keys.empty()) return keys;
  PassRows rows;
  Locate(strip, rows);
  DroppedPairs dropped;
  // Returns a word whose bit i is set if some row keeps key i of `part`.
  const auto kept = [&](tiling::Interval part) {
    const uint64_t inside = LowBits(part.size());
    if (inputs_.has_mask_tiles()) {
      uint64_t by_all = inside;
      TakeWords(strip, rows, part, [&](int64_t, uint64_t word) { return (by_all &= word) != 0; });
      return ~by_all & inside;
    }
    if (!LoadDropped(kernels, strip, rows, part, dropped)) return inside;
    const uint32_t* low = dropped.words_;
    const uint32_t* high = part.size() > kKeepBits ? low + strip.width : low;
    uint32_t all_low = ~0u, all_high = ~0u;
    for (int64_t i = 0; i < strip.count; ++i) {
      all_low &= low[i];
      all_high &= high[i];
    }
    return ~(uint64_t{all_high} << kKeepBits | all_low) & inside;
  };
  tiling::Interval hull = keys;
  for (; hull.begin < keys.end; hull.begin += DroppedPairs::kKeys) {
    const uint64_t bits = kept({hull.begin, std::min(hull.begin + DroppedPairs::kKeys, keys.end)});
    if (bits == 0) continue;
    hull.begin = std::max(keys.begin, (hull.begin + std::countr_zero(bits)) / kKeyStep * kKeyStep);
    break;
  }
  while (hull.begin < hull.end) {
    const int64_t begin = std::max(hull.begin, (hull.end - 1) / DroppedPairs::kKeys * DroppedPairs::kKeys);
    const uint64_t bits = kept({begin, hull.end});
    hull.end = begin;
    if (bits == 0) continue;
    hull.end += 64 - std::countl_zero(bits);
    break;
  }
  return hull;
}

core::kernels::KeepArgs ScorePasses::DrawKeepBits(const core::kernels::StripKernels& kernels, const StripRows& strip,
                                                  int64_t key_begin, int64_t keys, KeepBits& bits) const {
  assert(keys <= KeepBits::kMostKeys);
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.sequence)];
  const int64_t base = inputs_.dropout_offset[static_cast<size_t>(strip.sequence)];
  const int64_t count = core::CeilDiv(keys, kKeepBits);
  uint32_t* words = bits.words_;
  LaneArray<int64_t> first = {};  // flat index of each lane's first pair; nobody reads what unused lanes draw
  int64_t inside_block = 0;
  for (int64_t i = 0; i < strip.count; ++i) {
    assert(strip.head[i] < problem_.heads && strip.row[i] < sequence.rule.sq);
    first[i] = base + (strip.head[i] * sequence.rule.sq + strip.row[i]) * sequence.sk + key_begin;
    inside_block |= first[i] % 4;
  }
  if (inputs_.keep_bits != nullptr) {
    for (int64_t w = 0; w < count; ++w) {
      const int64_t n = std::min(kKeepBits, keys - w * kKeepBits);
      uint32_t* to = words + w * strip.width;
      for (int64_t i = 0; i < strip.count; ++i) to[i] = LoadBits(inputs_.keep_bits, first[i] + w * kKeepBits, n);
      std::fill(to + strip.count, to + strip.width, 0u);
    }
    return {words, 1.0f / inputs_.keep_prob};
  }
  LaneArray<uint64_t> blocks;
  for (int64_t i = 0; i < strip.width; ++i) blocks[i] = static_cast<uint64_t>(first[i]) / 4;
  const uint64_t threshold = core::KeepThreshold(inputs_.keep_prob);
  const int64_t draws = count + (inside_block != 0 ? 1 : 0);
  for (int64_t w = 0; w < draws; ++w) {
    core::DrawKeepWords(*inputs_.philox, threshold, {blocks.data(), static_cast<size_t>(strip.width)},
                        words + w * strip.width, kernels.isa);
    for (int64_t i = 0; i < strip.width; ++i) blocks[i] += kKeepBits / 4;
  }
  if (inside_block != 0) {
    for (int64_t w = 0; w < count; ++w) {
      uint32_t *word = words + w * strip.width, *next = word + strip.width;
      for (int64_t i = 0; i < strip.width; ++i) {
        word[i] = static_cast<uint32_t>((uint64_t{next[i]} << kKeepBits | word[i]) >> first[i] % 4);
      }
    }
  }
  return {words, 1.0f / inputs_.keep_prob};
}

}  // namespace fa::ops
