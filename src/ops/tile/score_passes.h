#ifndef FA_OPS_SCORE_PASSES_H_
#define FA_OPS_SCORE_PASSES_H_

#include <cstddef>
#include <cstdint>

#include "core/integer.h"
#include "core/kernels/kernel_types.h"
#include "fa/tensor.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/fetch_runs.h"
#include "ops/tile/lane_array.h"
#include "ops/tile/strip.h"
#include "tiling/problem.h"
#include "tiling/row_interval.h"
#include "tiling/tile_shape.h"

namespace fa::ops {

/// The factors that turn raw inner products into the base-2 exponent. The factors are computed once per call, from the
/// scale, the cap and the pse type. Q is multiplied by `q_multiplier` when it is packed, so that the other factors are
/// positive. `q_multiplier` is the sign of scale, or 0 if scale is 0.
struct ScoreScale {
  ScoreScale(DType dtype, const ScoreInputs& inputs);

  float q_multiplier;
  /// Whether a separate pass multiplies the inner product by cap_scale. This pass runs before a cap. The pass also runs
  /// before pse if all levels must agree to the bit, because a fused multiply-add rounds once, and not all levels have
  /// it.
  bool scale_first;
  float cap_scale;
  float bias_pre;     ///< factor of the inner product if a bias or slope is added
  float bias_post;    ///< factor of pse if pse is added
  float unit;         ///< factor from a tile's score to the natural-log score
  float exp2_factor;  ///< factor from a tile's score to the base-2 exponent: unit * log2(e)
};

/// Memory for the keep bits of a strip's keys in one block. The bits may begin inside a word that Philox has drawn.
class KeepBits {
 public:
  static constexpr int64_t kMostKeys = tiling::kMaxBlockK;

 private:
  friend class ScorePasses;
  static constexpr int64_t kWords = core::CeilDiv(kMostKeys, core::kernels::kKeepBits) + 1;
  alignas(64) uint32_t words_[kWords * kMaxStripWidth];
};

/// Where the lanes' rows of pse and of the dense mask begin, at key 0. For an absent or compressed tensor the value has
/// no meaning. If the mask has tiles, `tile_row` and `row_in_tile` say where the rows lie.
struct PassRows {
  LaneArray<const std::byte*> pse, dense_mask;
  LaneArray<int64_t> tile_row, row_in_tile;
};

/// The pairs of a strip that a dense mask drops among at most kKeys keys. Bit key % kKeepBits of words[key /
/// kKeepBits][lane] is set if the pair is dropped. The memory stays uninitialised until ScorePasses::LoadDropped.
class DroppedPairs {
 public:
  static constexpr int64_t kKeys = 64;

 private:
  friend class ScorePasses;
  alignas(64) uint32_t words_[kKeys / core::kernels::kKeepBits * kMaxStripWidth];
};

/// The passes: each changes a score tile s[keys][width] while the tile lies in cache, by one indirect call. Forward and
/// backward run the same passes.
class ScorePasses {
 public:
  /// The problem and the inputs must outlive the object.
  ScorePasses(const tiling::AttentionProblem& problem, const ScoreInputs& inputs)
      : problem_(problem), inputs_(inputs), scale_(problem.dtype, inputs) {}

  [[nodiscard]] const ScoreInputs& inputs() const { return inputs_; }
  [[nodiscard]] const ScoreScale& scale() const { return scale_; }
  /// Returns whether BiasAndCap has any effect.
  [[nodiscard]] bool changes_scores() const { return inputs_.caps() || inputs_.has_pse() || inputs_.has_slopes(); }
  [[nodiscard]] bool has_dropout() const { return inputs_.has_dropout(); }

  /// Finds the addresses of the rows of pse and mask that BiasAndCap and LoadDropped read.
  void Locate(const StripRows& strip, PassRows& rows) const;
  /// The most runs that ListRows adds.
  static constexpr int64_t kMostRuns = kMaxStripWidth;
  /// Adds to `runs` the rows of pse that AddPse will read for these keys.
  void ListRows(const StripRows& strip, const PassRows& rows, tiling::Interval keys, FetchRuns& runs) const;
  /// Applies the cap, then pse or slopes, to the keys from key_begin on.
  /// @param staging  kMaxStripWidth * keys floats, for a compressed pse
  /// @param capped   optional: receives the scores after the cap
  /// @param row_max  optional: raised to the largest of the resulting scores
  void BiasAndCap(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
                  int64_t key_begin, int64_t keys, float* staging, float* capped, float* s, float* row_max) const;
  /// Computes distance[lane] = (key_begin + kv_start) - (row + q_start), for pse types 2 and 3.
  void Distances(const StripRows& strip, int64_t key_begin, int32_t* distance) const;
  /// Sets s = fill at the keys outside the interval that each row keeps.
  void MaskInterval(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin, int64_t keys,
                    float fill, float* s) const;
  /// Finds the pairs that the dense mask drops among at most DroppedPairs::kKeys keys. Returns whether it drops any.
  bool LoadDropped(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
                   tiling::Interval keys, DroppedPairs& dropped) const;
  /// Sets s = fill at the dropped pairs.
  /// @param row_max  optional: raised to the largest score that is left
  static void MaskDropped(const core::kernels::StripKernels& kernels, const DroppedPairs& dropped, int64_t keys,
                          float fill, float* s, float* row_max);
  /// Sets s = fill at the pairs that the dense mask, if there is one, drops.
  void MaskDense(const core::kernels::StripKernels& kernels, const StripRows& strip, tiling::Interval keys, float fill,
                 float* s) const;
  /// Returns the smallest interval that holds all keys of `keys` that the dense mask keeps for some row. The interval
  /// begins at keys.begin or at a multiple of kKeyStep. Without a dense mask the interval is `keys`.
  [[nodiscard]] tiling::Interval KeptKeys(const core::kernels::StripKernels& kernels, const StripRows& strip,
                                          tiling::Interval keys) const;
  /// Draws the bits of the probabilities that dropout keeps, for the kernels that apply it. The result points into
  /// `bits`.
  [[nodiscard]] core::kernels::KeepArgs DrawKeepBits(const core::kernels::StripKernels& kernels, const StripRows& strip,
                                                     int64_t key_begin, int64_t keys, KeepBits& bits) const;

 private:
  /// Calls take(lane, word) for each lane, until take returns false. Bit i of the word is set if the mask's tiles drop
  /// key keys.begin + i, for at most 64 keys.
  template <typename Take>
  void TakeWords(const StripRows& strip, const PassRows& rows, tiling::Interval keys, const Take& take) const;
  void AddPse(const core::kernels::StripKernels& kernels, const StripRows& strip, const PassRows& rows,
              int64_t key_begin, int64_t keys, float* staging, float* s, float* row_max) const;
  void AddSlopes(const core::kernels::StripKernels& kernels, const StripRows& strip, int64_t key_begin, int64_t keys,
                 float* s, float* row_max) const;
  /// Returns whether a pass reads pse in place. A compressed pse is copied instead.
  [[nodiscard]] bool reads_pse() const { return inputs_.has_pse() && !inputs_.compressed_pse; }

  const tiling::AttentionProblem& problem_;
  const ScoreInputs& inputs_;
  ScoreScale scale_;
};

}  // namespace fa::ops

#endif  // FA_OPS_SCORE_PASSES_H_
