#ifndef FA_OPS_GRADIENT_TILES_H_
#define FA_OPS_GRADIENT_TILES_H_

#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/tile/grad_strip.h"
#include "ops/tile/score_tile.h"
#include "tiling/problem.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// A strip whose s and dp begin with the first key of the column.
struct ColumnStrip : GradStrip {
  tiling::Interval keys = {};  ///< visited keys of the column
  bool may_meet_masked = false;
};
using ColumnStrips = StripArray<ColumnStrip, kMaxTileStrips>;

/// What GradientTiles::Visit needs to know about a tile of the backward.
struct GradientColumn {
  tiling::Interval keys;
  const float *k_pairs = nullptr, *k = nullptr,
              *v = nullptr;  ///< k_pairs is written by pair_rows, k and v by pack_key_tiles
  const GradInputs& inputs;
  int64_t q_offset = 0;
  bool accumulate = false;                    ///< whether the loop adds to the strips' dQ instead of overwriting dQ
  float* staging = nullptr;                   ///< memory for ScoreTile::Fill
  char* memory = nullptr;                     ///< TileGradientArgs::kMemoryBytes bytes for the loop
  core::kernels::FetchList* fetch = nullptr;  ///< lines to prefetch, or null
  int64_t lines = 0;                          ///< how many lines `fetch` has
};

/// Computes P, dS and dQ of a tile's strips with the kernels' loop `gradient_tiles`. The loop applies passes and masks
/// of the scores, but no dropout. It gives dS only in the form that the products read, so it cannot serve gradients
/// that need dS as f32 (softcap, dpse, dslopes).
class GradientTiles {
 public:
  /// The caller keeps all arguments.
  GradientTiles(const tiling::AttentionProblem& problem, const ScoreTile& score_tile)
      : problem_(problem), score_tile_(score_tile) {}

  /// Returns whether the kernels have the loop for this call.
  [[nodiscard]] static bool Takes(const core::kernels::KernelTable& table, const BoundAttentionGrad& bound);

  /// Returns whether the strip may have a masked pair in one of its chunks of keys.
  [[nodiscard]] bool MayMeetMasked(const ColumnStrip& strip, tiling::Interval column) const;
  /// Computes every strip that has keys and whose kernels have the loop.
  void Visit(const GradientColumn& column, const ColumnStrips& strips) const;

 private:
  [[nodiscard]] core::kernels::TileGradientStrip ChunksOf(const ColumnStrip& strip, tiling::Interval column) const;

  const tiling::AttentionProblem& problem_;
  const ScoreTile& score_tile_;
};

}  // namespace fa::ops

#endif  // FA_OPS_GRADIENT_TILES_H_
