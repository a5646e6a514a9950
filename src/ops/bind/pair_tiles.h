#ifndef FA_OPS_PAIR_TILES_H_
#define FA_OPS_PAIR_TILES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/integer.h"

namespace fa::ops {

/// Where the tiles of a mask of pairs lie. A plan keeps this struct.
struct PairTileLayout {
  static constexpr int64_t kTile = 128, kWordBits = 64, kTileWords = kTile / kWordBits, kGroupTiles = 64;
  static constexpr int64_t kGroupKeys = kTile * kGroupTiles, kGroupWords = kTileWords * kGroupTiles;

  int64_t rows = 0, keys = 0;       ///< sizes of a plane, which is the mask of one batch element and head
  int64_t heads_per_plane = 1;      ///< query heads that share a plane
  bool one_row = false;             ///< whether one row of the mask stands for all rows
  std::vector<int64_t> plane = {};  ///< the first plane of each sequence

  [[nodiscard]] int64_t tile_rows() const { return core::CeilDiv(rows, kTile); }
  [[nodiscard]] int64_t tiles_of_row() const { return core::CeilDiv(keys, kTile); }
  [[nodiscard]] int64_t groups_of_row() const { return core::CeilDiv(keys, kGroupKeys); }
};

/// A mask of pairs as tiles, for reading. Tiles of `kTile` rows form a tile row. Tile row t of a plane p has the number
/// p * tile_rows() + t. Every kGroupTiles tiles of a tile row form a group. Each tile has a byte in `kinds`. The byte
/// holds the tile's kind. If the tile has bits, the byte also holds the tile's place among the tiles with bits of its
/// group.
struct PairTiles {
  enum Kind : uint8_t { kEmpty = 0, kFull = 1, kPartial = 2 };
  static constexpr int kPlaceShift = 2;

  /// The bits of some tiles of a tile row. A set bit drops its pair. Row of bits r begins at words[r * stride].
  struct Group {
    const uint64_t* words = nullptr;
    int64_t stride = 0;
  };
  /// One word of every row of bits of a tile: words[r * stride].
  struct Column {
    const uint64_t* words;
    int64_t stride;
  };

  const uint8_t* kinds = nullptr;
  const Group* groups = nullptr;
  const PairTileLayout* where = nullptr;
  /// 2^row_shift rows of a tile share their bits. Row r of a tile has its bits at words[(r >> row_shift) * stride].
  int row_shift = 0;

  /// Returns the tile row of a row.
  [[nodiscard]] int64_t TileRow(int64_t sequence, int64_t head, int64_t row) const {
    const int64_t plane = where->plane[static_cast<size_t>(sequence)] + head / where->heads_per_plane;
    return plane * where->tile_rows() + (where->one_row ? 0 : row / PairTileLayout::kTile);
  }
  /// Returns which row of bits of its tile holds the bits of `row`.
  [[nodiscard]] int64_t RowInTile(int64_t row) const {
    return where->one_row ? 0 : row % PairTileLayout::kTile >> row_shift;
  }
  /// Returns word `word` of the rows of a tile row: the pairs of the keys [64 word, 64 word + 64).
  [[nodiscard]] Column Words(int64_t tile_row, int64_t word) const {
    constexpr int64_t kWords = PairTileLayout::kTileWords;
    static constexpr uint64_t kNone = 0, kAll = ~uint64_t{0};
    const int64_t tile = word / kWords;
    const uint8_t kind = kinds[tile_row * where->tiles_of_row() + tile];
    if ((kind & kPartial) == 0) return {(kind & kFull) != 0 ? &kNone : &kAll, 0};
    const Group& group = groups[tile_row * where->groups_of_row() + tile / PairTileLayout::kGroupTiles];
    return {group.words + (kind >> kPlaceShift) * kWords + word % kWords, group.stride};
  }
};

/// Returns a word whose lowest `bits` bits are set, 0 < bits <= 64.
[[nodiscard]] inline uint64_t LowBits(int64_t bits) { return ~uint64_t{0} >> (PairTileLayout::kWordBits - bits); }

/// Returns a word with bit j set where byte j of `bytes` is not 0. The other bits are 0.
[[nodiscard]] uint64_t WordOfBytes(const uint8_t* bytes, int64_t count);

/// Sets the kinds of tiles whose bits lie at `words`. The places of tiles (see PairTiles) are not set.
/// @param keys  the keys of all tiles together
void FindKinds(const uint64_t* words, int64_t stride, int64_t rows, int64_t keys, uint8_t* kinds);

}  // namespace fa::ops

#endif  // FA_OPS_PAIR_TILES_H_
