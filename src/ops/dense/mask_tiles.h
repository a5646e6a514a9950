#ifndef FA_OPS_MASK_TILES_H_
#define FA_OPS_MASK_TILES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/run/executor.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/bind/pair_tiles.h"
#include "ops/plan/plan_impl.h"
#include "tiling/rows_plan.h"

namespace fa::ops {

/// Turns the dense mask of a call from bytes into the tiles of a PairMask, before the call's own tiles run. The call's
/// tiles would read the bytes once per head. Mask tiles are read faster, and they show which keys need no visit. A call
/// with few rows keeps the bytes, because it reads each byte once. The workspace has room for the bits of all mask
/// tiles, because the mask's contents are not known while planning.
class MaskTiles {
 public:
  /// `bound` must outlive the object.
  MaskTiles(const BoundAttention& bound, int workers);
  /// Adds the memory of the tiles, if there are any, to the workspace of a program.
  template <typename Program>
  void Book(Program& program) {
    if (plan_.rows == 0) return;
    words_at_ = program.Book("bits of the dense mask", words_ * sizeof(uint64_t));
    kinds_at_ = program.Book("tiles of the dense mask", tile_rows() * static_cast<size_t>(layout_.tiles_of_row()));
    groups_at_ = program.Book("groups of tiles of the dense mask",
                              tile_rows() * static_cast<size_t>(layout_.groups_of_row()) * sizeof(PairTiles::Group));
    state_at_ = program.Book("run state of the mask", core::RunStateBytes(plan_.graph));
  }
  /// Makes the tiles from the bytes of scores.dense_mask, and gives them to the scores in place of the bytes.
  [[nodiscard]] Status Make(const GraphRunner& runner, std::byte* workspace, ScoreInputs* scores) const;

 private:
  /// The mask of a batch element and a head, or of several that share it.
  struct Plane {
    int64_t from, stride;  ///< the first byte, and the bytes between rows
    int64_t rows, keys;    ///< the most rows and keys of the sequences that read the plane; nothing beyond may be read
    /// The keys that each row keeps apart from the dense mask; null if the sequences that read the plane keep different
    /// keys.
    const tiling::RowRule* rule;
    size_t words;  ///< number of words of all planes before this plane
  };

  /// Adds the planes of the mask of sequence b.
  void AddPlanes(const BoundAttention& bound, size_t b);
  void MakeTileRow(int64_t number, const uint8_t* bytes, std::byte* workspace) const;
  /// Returns the keys of the plane for which some strip reads the mask of these rows.
  [[nodiscard]] tiling::Interval KeysRead(const Plane& plane, tiling::Interval rows) const;
  [[nodiscard]] size_t tile_rows() const { return planes_.size() * static_cast<size_t>(layout_.tile_rows()); }
  [[nodiscard]] int64_t words_of_row() const { return core::CeilDiv(layout_.keys, PairTileLayout::kWordBits); }

  std::vector<Plane> planes_;
  PairTileLayout layout_;
  tiling::RowsPlan plan_;  ///< plan of the tasks, which take tile rows of the mask
  size_t words_ = 0, words_at_ = 0, kinds_at_ = 0, groups_at_ = 0, state_at_ = 0;
};

}  // namespace fa::ops

#endif  // FA_OPS_MASK_TILES_H_
