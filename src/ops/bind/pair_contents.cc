// Makes the contents of a PairMask. A tile row is made group by group. A source writes the bits of the group's pairs to
// memory of the thread. Then the tiles are classified, and the bits of tiles with some pairs are copied. So the source
// is read once, and the extra memory per thread is the bits of one group, 128 KiB.
#include "ops/bind/pair_contents.h"

#include <algorithm>

#include "ops/plan/parallel_rows.h"

namespace fa::ops {
namespace {

using tiling::Interval;

/// Returns how many rows of bits a tile of these rows has.
int64_t RowsOfBits(const PairMask::Contents& contents, int64_t rows) {
  return core::CeilDiv(rows, int64_t{1} << contents.row_shift);
}

/// Finds the kinds of the tiles of a group whose bits lie at `words`, and copies the bits of partial tiles to `group`.
/// @param rows  the number of rows of bits
void KeepGroup(const uint64_t* words, int64_t rows, int64_t keys, uint8_t* kinds, PairTiles::Group& group) {
  FindKinds(words, PairTileLayout::kGroupWords, rows, keys, kinds);
  const int64_t tiles = core::CeilDiv(keys, PairTileLayout::kTile);
  const auto words_of = [&](int64_t tile) {
    return std::min(PairTileLayout::kTileWords,
                    core::CeilDiv(keys - tile * PairTileLayout::kTile, PairTileLayout::kWordBits));
  };
  int64_t stride = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    if (kinds[t] == PairTiles::kPartial) stride += words_of(t);
  }
  if (stride == 0) return;
  auto* to = new uint64_t[static_cast<size_t>(rows * stride)];
  group = {to, stride};
  int64_t place = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    if (kinds[t] != PairTiles::kPartial) continue;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(words + r * PairTileLayout::kGroupWords + t * PairTileLayout::kTileWords, words_of(t),
                  to + r * stride + place * PairTileLayout::kTileWords);
    }
    kinds[t] = static_cast<uint8_t>(PairTiles::kPartial | place++ << PairTiles::kPlaceShift);
  }
}

}  // namespace

std::shared_ptr<PairMask::Contents> MakeContents(const Dims& shape, int row_shift) {
  auto contents = std::make_shared<PairMask::Contents>();
  contents->shape = shape;
  contents->row_shift = row_shift;
  contents->layout.rows = shape[2];
  contents->layout.keys = shape[3];
  const PairTileLayout& layout = contents->layout;
  const auto tile_rows = static_cast<size_t>(shape[0] * shape[1] * layout.tile_rows());
  contents->kinds.resize(tile_rows * static_cast<size_t>(layout.tiles_of_row()));
  contents->groups.resize(tile_rows * static_cast<size_t>(layout.groups_of_row()));
  contents->made.resize(tile_rows);
  return contents;
}

PairTiles TilesOf(const PairMask::Contents& contents, const PairTileLayout& where) {
  return {contents.kinds.data(), contents.groups.data(), &where, contents.row_shift};
}

int64_t NumberOfTileRow(const PairMask::Contents& contents, int64_t batch, int64_t head, int64_t tile_row) {
  return (batch * contents.shape[1] + head) * contents.layout.tile_rows() + tile_row;
}

Status MakeTiles(PairMask::Contents& contents, const PairRegion& region, PairSource source, Context* context) {
  const PairTileLayout& layout = contents.layout;
  auto make = [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> words(static_cast<size_t>(RowsOfBits(contents, std::min(layout.rows, PairTileLayout::kTile)) *
                                                    PairTileLayout::kGroupWords));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = region.BatchOf(i), head = region.HeadOf(i),
                    first = region.TileRowOf(i) * PairTileLayout::kTile;
      const Interval rows{first, std::min(first + PairTileLayout::kTile, layout.rows)};
      const int64_t number = NumberOfTileRow(contents, batch, head, region.TileRowOf(i));
      uint8_t* kinds = contents.kinds.data() + number * layout.tiles_of_row();
      PairTiles::Group* group = contents.groups.data() + number * layout.groups_of_row();
      for (int64_t key = 0; key < layout.keys;
           key += PairTileLayout::kGroupKeys, kinds += PairTileLayout::kGroupTiles) {
        const Interval keys{key, std::min(key + PairTileLayout::kGroupKeys, layout.keys)};
        source(batch, head, rows, keys, words.data(), PairTileLayout::kGroupWords);
        KeepGroup(words.data(), RowsOfBits(contents, rows.size()), keys.size(), kinds, *group++);
      }
      contents.made[static_cast<size_t>(number)] = 1;
    }
  };
  return ParallelRows(context, region.size(), 1, RowsFunction(make));
}

/// Counts the tiles and the bytes of `contents`, whose tiles have all been made.
void Complete(PairMask::Contents& contents) {
  for (const uint8_t kind : contents.kinds) {
    int64_t& count = (kind & PairTiles::kPartial) != 0 ? contents.counts.partial
                     : kind == PairTiles::kFull        ? contents.counts.full
                                                       : contents.counts.empty;
    ++count;
  }
  contents.made = {};
  contents.bytes = static_cast<int64_t>(contents.kinds.size() + contents.groups.size() * sizeof(PairTiles::Group));
  const PairTileLayout& layout = contents.layout;
  for (size_t i = 0; i < contents.groups.size(); ++i) {
    const int64_t tile_row = static_cast<int64_t>(i) / layout.groups_of_row() % layout.tile_rows();
    const int64_t rows = std::min(PairTileLayout::kTile, layout.rows - tile_row * PairTileLayout::kTile);
    contents.bytes += RowsOfBits(contents, rows) * contents.groups[i].stride * static_cast<int64_t>(sizeof(uint64_t));
  }
}

}  // namespace fa::ops
