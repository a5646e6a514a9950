#include "ops/score_tile.h"

#include <algorithm>

namespace fa::ops {

using core::kernels::kMaskedProbability;
using core::kernels::kMaskedScore;
using core::kernels::StripKernels;
using tiling::Interval;

void ScoreTile::InnerProducts(const Strip& strip, Interval keys, const KeyRows& rows, float* s, float* row_max) const {
  if (keys.empty()) return;
  const StripKernels& kernels = *strip.kernels;
  const bool rope = bound_.has_rope;
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.KRunEnd(key, keys.end);
    kernels.scores(rows.K(key), end - key, strip.panel, bound_.problem.d, false,
                   s + (key - keys.begin) * strip.lanes.width, rope ? nullptr : row_max);
    key = end;
  }
  if (!rope) return;
  kernels.scores(rows.KRope(keys.begin), keys.size(),
                 strip.panel + kernels.PanelRows(bound_.problem.d) * strip.lanes.width, bound_.problem.d_rope, true, s,
                 row_max);
}

bool ScoreTile::Fill(const Strip& strip, Interval keys, const KeyRows& rows, float* staging, float* s, float* block_max,
                     float* capped) const {
  const StripKernels& kernels = *strip.kernels;
  const auto at = [&](int64_t key) { return s + (key - keys.begin) * strip.lanes.width; };
  if (block_max != nullptr) std::fill_n(block_max, strip.lanes.width, kMaskedScore);

  // [keys.begin, middle.begin) and [middle.end, keys.end) hold masked pairs; the middle does not.
  Interval middle{std::clamp((strip.full.begin + kKeyStep - 1) / kKeyStep * kKeyStep, keys.begin, keys.end),
                  std::clamp(strip.full.end / kKeyStep * kKeyStep, keys.begin, keys.end)};
  if (strip.full.end >= keys.end) middle.end = keys.end;
  if (middle.empty()) middle = {keys.end, keys.end};
  const Interval left{keys.begin, middle.begin}, right{middle.end, keys.end};

  const bool whole = bound_.has_dense_mask || passes_.changes_scores();
  if (whole) {
    InnerProducts(strip, keys, rows, s, nullptr);
    passes_.BiasAndCap(kernels, strip.lanes, keys.begin, keys.size(), staging, capped, s);
    if (bound_.has_dense_mask) {
      passes_.MaskDense(table_, kernels, strip.lanes, keys.begin, keys.size(), kMaskedScore, s);
    }
  } else {
    InnerProducts(strip, middle, rows, at(middle.begin), block_max);
  }
  for (const Interval edge : {left, right}) {
    if (edge.empty()) continue;
    if (!whole) InnerProducts(strip, edge, rows, at(edge.begin), nullptr);
    passes_.MaskInterval(kernels, strip.lanes, edge.begin, edge.size(), kMaskedScore, at(edge.begin));
    if (!whole && block_max != nullptr) kernels.block_max(at(edge.begin), edge.size(), block_max);
  }
  if (whole && block_max != nullptr) kernels.block_max(s, keys.size(), block_max);
  return bound_.has_dense_mask || !left.empty() || !right.empty();
}

void ScoreTile::MarkMasked(const Strip& strip, Interval keys, float* x) const {
  const StripKernels& kernels = *strip.kernels;
  passes_.MaskInterval(kernels, strip.lanes, keys.begin, keys.size(), kMaskedProbability, x);
  if (bound_.has_dense_mask) {
    passes_.MaskDense(table_, kernels, strip.lanes, keys.begin, keys.size(), kMaskedProbability, x);
  }
}

}  // namespace fa::ops
