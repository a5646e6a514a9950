#ifndef FA_TILING_BACKWARD_TILES_H_
#define FA_TILING_BACKWARD_TILES_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// The order in which a row group adds the columns of a pair.
enum class ColumnOrder : uint8_t {
  kOfRule,  ///< the order that ColumnsDescend(rule) gives
  kAscending,
  kDescending,
};

/// How the tiles of the backward are cut and claimed.
struct BackwardCut {
  int64_t block_q = 128, block_k = 128;
  int64_t strip_rows = 32;
  int64_t group = 1;  ///< number of query heads per kv head
  int64_t band = 1;   ///< number of columns of a band, whose tiles are claimed in the order of their steps (PairTiles)
  /// Whether all columns of a query head come before the columns of the next head, which takes over the slot's rows.
  /// This order needs a band of one column.
  bool head_by_head = false;
  /// The columns whose tiles are made. Which tiles are the first and the last of a row group still depends on all
  /// columns.
  Interval columns = {0, std::numeric_limits<int64_t>::max()};
  bool rows_without_keys = true;  ///< whether row groups without any column get tiles too
  ColumnOrder order = ColumnOrder::kOfRule;
};

/// One tile of a (sequence, kv head) pair. Tiles are numbered within the pair.
struct PairTile {
  static constexpr int32_t kNone = -1;

  BackwardItem item;  ///< head counts from 0 inside the group; sequence, head_kv and slot are not filled in
  int32_t band = 0;
  int32_t next_in_column = kNone, next_in_rows = kNone;  ///< the tiles that wait for this one; kNone if there is none
  bool waits = false;                                    ///< whether this tile waits for another tile of the pair
};

/// The tiles of a pair in claim order, which is a topological order. The bands stand in the order in which row groups
/// add columns. In a band, tiles are ordered by step. A tile that waits for no tile of its band has step 0. Any other
/// tile has the highest step of the tiles that it waits for, plus one. Pairs with equal masks have equal tiles.
struct PairTiles {
  std::vector<PairTile> tiles;
  std::vector<int64_t> band_begin;  ///< where the tiles of each band begin in `tiles`, then tiles.size()
  /// Number of (row, key) pairs that the strips visit; each strip visits only its own keys.
  double visited_pairs = 0;

  [[nodiscard]] int64_t bands() const { return static_cast<int64_t>(band_begin.size()) - 1; }
};

/// Returns the FLOPs of the five products for each kept (query head, row, key).
[[nodiscard]] inline double BackwardFlopsPerPair(const AttentionProblem& problem) {
  return 2 * static_cast<double>(3 * (problem.d + problem.d_rope) + 2 * problem.dv);
}

/// Returns whether row groups take their columns from the last key to the first.
[[nodiscard]] bool ColumnsDescend(const RowRule& rule);

/// Returns the number of tiles of a pair with all its columns, including tiles that only write zeros. There need not be
/// memory for so many tiles.
[[nodiscard]] double CountPairTiles(const RowRule& rule, const BackwardCut& cut);

[[nodiscard]] PairTiles MakePairTiles(const RowRule& rule, const BackwardCut& cut);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_TILES_H_
