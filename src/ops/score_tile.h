#ifndef FA_OPS_SCORE_TILE_H_
#define FA_OPS_SCORE_TILE_H_

#include "core/kernels/kernel_types.h"
#include "ops/key_rows.h"
#include "ops/score_passes.h"
#include "ops/strip.h"

namespace fa::ops {

/// Scores of one strip against an interval of keys, with every fusion and mask applied: what forward and backward
/// share.
class ScoreTile {
 public:
  ScoreTile(const BoundAttention& bound, const core::kernels::KernelTable& table, const AttentionArgs& args)
      : bound_(bound), table_(table), passes_(bound, args) {}

  [[nodiscard]] const ScorePasses& passes() const { return passes_; }

  /// s[key - keys.begin][lane] = score, kMaskedScore where masked.
  /// @param staging    kMaxStripWidth * keys floats, for a compressed pse
  /// @param block_max  optional: the largest score of each lane
  /// @param capped     optional: with softcap, the capped score before any bias
  /// @return whether a pair may be masked
  bool Fill(const Strip& strip, tiling::Interval keys, const KeyRows& rows, float* staging, float* s, float* block_max,
            float* capped) const;

  /// x = kMaskedProbability at every masked pair: the mark that the exact products skip.
  void MarkMasked(const Strip& strip, tiling::Interval keys, float* x) const;

 private:
  void InnerProducts(const Strip& strip, tiling::Interval keys, const KeyRows& rows, float* s, float* row_max) const;

  const BoundAttention& bound_;
  const core::kernels::KernelTable& table_;
  ScorePasses passes_;
};

}  // namespace fa::ops

#endif  // FA_OPS_SCORE_TILE_H_
