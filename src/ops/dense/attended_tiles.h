#ifndef FA_OPS_ATTENDED_TILES_H_
#define FA_OPS_ATTENDED_TILES_H_

#include "core/kernels/kernel_types.h"
#include "ops/bind/attention_rows.h"
#include "ops/tile/forward_strips.h"
#include "ops/tile/key_panels.h"
#include "ops/tile/tile_scratch.h"
#include "tiling/problem.h"
#include "tiling/row_interval.h"

namespace fa::ops {

/// Computes the strips of a tile with the kernels' loop `attend_tiles`. The loop applies every pass and mask, chunk by
/// chunk, but no dropout.
class AttendedTiles {
 public:
  /// The caller keeps all arguments.
  AttendedTiles(const tiling::AttentionProblem& problem, const core::kernels::RowKernels& kernels,
                const ForwardRows& rows, const ForwardStrips& strips)
      : problem_(problem), kernels_(kernels), rows_(rows), strips_(strips) {}

  /// Returns whether the kernels have the loop for the head sizes of `problem`.
  [[nodiscard]] static bool Takes(const core::kernels::KernelTable& table, const tiling::AttentionProblem& problem);

  /// Visits all keys of strips that ForwardStrips has opened. The strips' row_max are then references, not maxima.
  void Visit(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const;
  /// Opens each strip again that has a row for which the loop's result may be wrong. There are two causes. The row's
  /// reference was bad, so a sum, an output or a sink's weight left the range of f32. Or the strip visits an element of
  /// V that is not finite. The loop's results are kept in scratch. The strips are to visit their keys with the other
  /// kernels, without masked pairs.
  /// @return whether there is such a strip
  [[nodiscard]] bool Reopen(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const;
  /// Must be called after the reopened strips have visited their keys again. Gives the loop's result back to every row
  /// for which that result is right. Whether it is right depends on the row alone, so a row's bits do not depend on its
  /// strip.
  void Restore(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const;

 private:
  [[nodiscard]] tiling::Interval Chunks(const RunningStrip& strip) const;
  [[nodiscard]] bool MeetsReplaced(const KeyTiles& keys, const RunningStrip& strip) const;
  [[nodiscard]] bool IsFinite(const RunningStrip& strip, int64_t lane) const;
  [[nodiscard]] bool SinkIsFarAbove(const RunningStrip& strip, int64_t lane) const;
  [[nodiscard]] bool FindGoodLanes(RunningStrip& strip) const;
  [[nodiscard]] float* KeptLanes(const TileScratch& scratch, int64_t strip) const;

  const tiling::AttentionProblem& problem_;
  const core::kernels::RowKernels& kernels_;
  const ForwardRows& rows_;
  const ForwardStrips& strips_;
};

}  // namespace fa::ops

#endif  // FA_OPS_ATTENDED_TILES_H_
