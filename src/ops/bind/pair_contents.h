#ifndef FA_OPS_PAIR_CONTENTS_H_
#define FA_OPS_PAIR_CONTENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/function_ref.h"
#include "fa/pair_mask.h"
#include "fa/tensor.h"
#include "ops/bind/pair_tiles.h"
#include "tiling/row_interval.h"

namespace fa {

/// The contents of a PairMask. Planes follow one another, batch element after batch element.
struct PairMask::Contents {
  Dims shape;
  ops::PairTileLayout layout;  ///< without `plane`, which each call has for itself
  std::vector<uint8_t> kinds;
  std::vector<ops::PairTiles::Group> groups;  ///< this object owns the words of the groups
  std::vector<uint8_t> made;                  ///< whether each tile row has been made; empty once all have been made
  int row_shift = 0;                          ///< as PairTiles::row_shift
  PairTileCounts counts;
  int64_t bytes = 0;

  Contents() = default;
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  ~Contents() {
    for (const ops::PairTiles::Group& group : groups) delete[] group.words;
  }
};

namespace ops {

/// A function f(batch, head, rows, keys, words, stride), which writes the bits of these rows and keys of a plane to
/// `words`. If rows share their bits, the bits are written for the first of these rows only. A set bit drops its pair,
/// and bits behind the last key are 0. The keys begin at a multiple of PairTileLayout::kGroupKeys. The first key of a
/// row has the lowest bit of the row's first word. Rows of bits are `stride` words apart.
using PairSource = core::FunctionRef<void(int64_t, int64_t, tiling::Interval, tiling::Interval, uint64_t*, int64_t)>;

/// Tile rows of some planes of a mask.
struct PairRegion {
  int64_t batch = 0, head = 0, tile_row = 0;  ///< the region's first batch element, head and tile row
  int64_t batches, heads, tile_rows;

  [[nodiscard]] int64_t size() const { return batches * heads * tile_rows; }
  /// These functions return the batch element, head and tile row of the region's tile row number i, 0 <= i < size().
  [[nodiscard]] int64_t BatchOf(int64_t i) const { return batch + i / (heads * tile_rows); }
  [[nodiscard]] int64_t HeadOf(int64_t i) const { return head + i / tile_rows % heads; }
  [[nodiscard]] int64_t TileRowOf(int64_t i) const { return tile_row + i % tile_rows; }
};

/// The largest number of pairs that a mask may have.
inline constexpr int64_t kMostPairs = int64_t{1} << 60;

/// Returns contents of this shape, whose tiles have not been made yet.
[[nodiscard]] std::shared_ptr<PairMask::Contents> MakeContents(const Dims& shape, int row_shift = 0);
/// Returns the tiles of contents, for reading.
[[nodiscard]] PairTiles TilesOf(const PairMask::Contents& contents, const PairTileLayout& where);
/// Returns the number of a tile row among the tile rows of all planes.
[[nodiscard]] int64_t NumberOfTileRow(const PairMask::Contents& contents, int64_t batch, int64_t head,
                                      int64_t tile_row);
/// Makes the tiles of a region from a source, in parallel. The source is called once per tile row and group of tiles.
[[nodiscard]] Status MakeTiles(PairMask::Contents& contents, const PairRegion& region, PairSource source,
                               Context* context);
/// Counts the tiles and the bytes of `contents`. All tiles must have been made.
void Complete(PairMask::Contents& contents);

}  // namespace ops
}  // namespace fa

#endif  // FA_OPS_PAIR_CONTENTS_H_
