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

  /// Returns whether the kernels have the loop for heads of these sizes.
  [[nodiscard]] static bool Takes(const core::kernels::KernelTable& table, const tiling::AttentionProblem& problem);

  /// Visits all keys of strips that ForwardStrips has opened. Their row_max are references, not maxima.
  void Visit(const KeyTiles& keys, const TileScratch& scratch, ForwardStrips::Strips& strips) const;

  /// Computes those rows of a strip anew whose reference was a bad one: a sum or an output left the range of f32, or a
  /// masked pair met a value that is not finite. The other rows keep their bits, so these do not depend on the strip.
  /// @param visit  visits the strip's keys with the other kernels
  template <typename Visit>
  void Repair(RunningStrip& strip, const TileScratch& scratch, const Visit& visit) const {
    LaneArray<bool> good;
    if (!strip.started || AllGood(strip, good)) return;
    Save(strip, scratch);
    ForwardStrips::Reset(strip);
    strip.started = false;
    do {
      visit(strip);
    } while (strips_.Restart(strip));
    Restore(strip, scratch, good);
  }

 private:
  [[nodiscard]] bool AllGood(const RunningStrip& strip, LaneArray<bool>& good) const;
  void Save(const RunningStrip& strip, const TileScratch& scratch) const;
  void Restore(const RunningStrip& strip, const TileScratch& scratch, const LaneArray<bool>& good) const;

  const tiling::AttentionProblem& problem_;
  const core::kernels::RowKernels& kernels_;
  const ForwardRows& rows_;
  const ForwardStrips& strips_;
};

}  // namespace fa::ops

#endif  // FA_OPS_ATTENDED_TILES_H_
