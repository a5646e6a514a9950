#ifndef FA_OPS_SCORE_TILE_H_
#define FA_OPS_SCORE_TILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "ops/tile/fetch_runs.h"
#include "ops/tile/key_rows.h"
#include "ops/tile/score_passes.h"
#include "ops/tile/strip.h"

namespace fa::ops {

/// Computes the scores of one strip against an interval of keys, with every pass and mask applied. Forward and backward
/// share this class.
class ScoreTile {
 public:
  /// The problem, the kernel table and the inputs must outlive the object.
  ScoreTile(const tiling::AttentionProblem& problem, const core::kernels::KernelTable& table, const ScoreInputs& inputs)
      : problem_(problem), table_(table), passes_(problem, inputs) {}

  [[nodiscard]] const ScorePasses& passes() const { return passes_; }

  /// Sets s[key - keys.begin][lane] to the score, or to kMaskedScore if the pair is masked.
  /// @param staging    kMaxStripWidth * keys floats, for a compressed pse
  /// @param block_max  optional: the largest score of each lane
  /// @param capped     optional: the capped score before any bias, if scores are capped
  /// @param beside     optional, for kernels with `scores_beside`: a product, which is done when Fill returns
  /// @return whether a pair may be masked
  bool Fill(const Strip& strip, tiling::Interval keys, const KeyRows& rows, float* staging, float* s, float* block_max,
            float* capped, const core::kernels::ProductArgs* beside = nullptr) const {
    const auto products = [&](tiling::Interval part, float* to, float* row_max, FetchRuns* reads = nullptr) {
      InnerProducts(strip, part, rows, to, row_max, std::exchange(beside, nullptr), reads);
    };
    return Fill(strip, keys, products, staging, s, block_max, capped);
  }
  /// Works like the other Fill, with any function `products(keys, s, row_max, reads)`. `products` writes the inner
  /// products of a non-empty range of keys. If row_max is given, `products` raises row_max to the largest product. If
  /// `reads` is given, `products` prefetches the cache lines of the runs of memory that `reads` lists, and may append
  /// up to kPassKeys runs.
  template <typename Products>
  bool Fill(const Strip& strip, tiling::Interval keys, const Products& products, float* staging, float* s,
            float* block_max, float* capped) const;

  /// Returns the keys of `block` that the strip must visit: the strip's hull in `block`, without keys at both ends that
  /// the dense mask drops for every row.
  [[nodiscard]] tiling::Interval KeptKeys(const Strip& strip, tiling::Interval block) const {
    return passes_.KeptKeys(*strip.kernels, strip.lanes, strip.KeysIn(block));
  }
  /// Sets x = kMaskedProbability at every masked pair, which the exact products then skip.
  void MarkMasked(const Strip& strip, tiling::Interval keys, float* x) const;

 private:
  /// The number of keys per step of the passes.
  static constexpr int64_t kPassKeys = DroppedPairs::kKeys;

  void InnerProducts(const Strip& strip, tiling::Interval keys, const KeyRows& rows, float* s, float* row_max,
                     const core::kernels::ProductArgs* beside, FetchRuns* reads) const;

  void AddFetched(const KeyRows& rows, tiling::Interval keys, FetchRuns& reads) const;

  const tiling::AttentionProblem& problem_;
  const core::kernels::KernelTable& table_;
  ScorePasses passes_;
};

template <typename Products>
bool ScoreTile::Fill(const Strip& strip, tiling::Interval keys, const Products& products, float* staging, float* s,
                     float* block_max, float* capped) const {
  using core::kernels::kMaskedScore;
  using tiling::Interval;
  const core::kernels::StripKernels& kernels = *strip.kernels;
  const auto at = [&](int64_t key) { return s + (key - keys.begin) * strip.lanes.width; };
  if (block_max != nullptr) std::fill_n(block_max, strip.lanes.width, kMaskedScore);

  // [keys.begin, middle.begin) and [middle.end, keys.end) hold masked pairs. The middle holds none.
  Interval middle{std::clamp(core::RoundUp(strip.full.begin, kKeyStep), keys.begin, keys.end),
                  std::clamp(strip.full.end / kKeyStep * kKeyStep, keys.begin, keys.end)};
  if (strip.full.end >= keys.end) middle.end = keys.end;
  if (middle.empty()) middle = {keys.end, keys.end};
  const Interval left{keys.begin, middle.begin}, right{middle.end, keys.end};

  const bool has_dense_mask = passes_.inputs().has_dense_mask(), changes_scores = passes_.changes_scores();
  if (has_dense_mask || changes_scores) {
    // The loop works on one part of the keys at a time, whose scores stay in L1 from pass to pass. The rows of pse are
    // fetched during the products. Neighbouring parts that no pass changes are one part.
    bool masks = false;
    PassRows rows;
    passes_.Locate(strip.lanes, rows);
    DroppedPairs dropped;
    const auto has_edge = [&](Interval part) { return part.begin < left.end || part.end > right.begin; };
    const auto drops = [&](Interval part) {
      return has_dense_mask && passes_.LoadDropped(kernels, strip.lanes, rows, part, dropped);
    };
    // The list of a part has room for the rows of pse, and for the rows of K that the products fetch. The list's memory
    // stays uninitialised, since most lists are short.
    constexpr int64_t kRoom = ScorePasses::kMostRuns + kPassKeys;
    alignas(FetchRuns::Run) std::byte memory[kRoom * sizeof(FetchRuns::Run)];
    for (Interval part{keys.begin, keys.begin}; part.begin < keys.end; part.begin = part.end) {
      part.end = std::min(part.begin + kPassKeys, keys.end);
      float* to = at(part.begin);
      const bool edge = has_edge(part), masked = drops(part);
      // The last pass also finds the maximum, unless pairs must still be masked after it.
      float* row_max = edge ? nullptr : block_max;
      if (changes_scores) {
        FetchRuns reads({reinterpret_cast<FetchRuns::Run*>(memory), kRoom});
        passes_.ListRows(strip.lanes, rows, part, reads);
        products(part, to, nullptr, &reads);
        passes_.BiasAndCap(kernels, strip.lanes, rows, part.begin, part.size(), staging,
                           capped == nullptr ? nullptr : capped + (to - s), to, masked ? nullptr : row_max);
      } else if (edge || masked) {
        products(part, to, nullptr);
      } else {
        while (part.end < keys.end) {
          const Interval next{part.end, std::min(part.end + kPassKeys, keys.end)};
          if (has_edge(next) || drops(next)) break;
          part.end = next.end;
        }
        products(part, to, row_max);
        continue;
      }
      if (masked) {
        ScorePasses::MaskDropped(kernels, dropped, part.size(), kMaskedScore, to, row_max);
        masks = true;
      }
      if (!edge) continue;
      for (const Interval whole_edge : {left, right}) {
        const Interval edge_part{std::max(part.begin, whole_edge.begin), std::min(part.end, whole_edge.end)};
        if (edge_part.empty()) continue;
        passes_.MaskInterval(kernels, strip.lanes, edge_part.begin, edge_part.size(), kMaskedScore,
                             at(edge_part.begin));
      }
      if (block_max != nullptr) kernels.passes.block_max(to, part.size(), block_max);
    }
    return masks || !left.empty() || !right.empty();
  }
  if (!middle.empty()) products(middle, at(middle.begin), block_max);
  for (const Interval edge : {left, right}) {
    if (edge.empty()) continue;
    products(edge, at(edge.begin), nullptr);
    passes_.MaskInterval(kernels, strip.lanes, edge.begin, edge.size(), kMaskedScore, at(edge.begin));
    if (block_max != nullptr) kernels.passes.block_max(at(edge.begin), edge.size(), block_max);
  }
  return !left.empty() || !right.empty();
}

}  // namespace fa::ops

#endif  // FA_OPS_SCORE_TILE_H_
