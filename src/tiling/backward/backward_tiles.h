#ifndef FA_TILING_BACKWARD_TILES_H_
#define FA_TILING_BACKWARD_TILES_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// In which order the rows of a pair take their columns.
enum class ColumnOrder : uint8_t {
  kOfRule,  ///< ColumnsDescend(rule) says
  kAscending,
  kDescending,
};

/// How the tiles of the backward are cut and claimed.
struct BackwardCut {
  int64_t block_q = 128, block_k = 128;
  int64_t strip_rows = 32;
  int64_t group = 1;  ///< query heads per kv head
  int64_t band = 1;   ///< columns that are claimed together, step by step
  /// All columns of a query head before those of the next, which takes over the head's rows of the slot; band is 1.
  bool head_by_head = false;
  /// Only some columns' tiles, by number; what is first and last of a row group's tiles is so of those of all columns.
  Interval columns = {0, std::numeric_limits<int64_t>::max()};
  bool rows_without_keys = true;  ///< also the tiles of row groups that no column has
  ColumnOrder order = ColumnOrder::kOfRule;
};

/// One tile of a (sequence, kv head) pair, with the pair's own numbers.
struct PairTile {
  static constexpr int32_t kNone = -1;

  BackwardItem item;  ///< head counts from 0 in the group; sequence, head_kv and slot are not filled in
  int32_t band = 0;
  int32_t next_in_column = kNone, next_in_rows = kNone;  ///< the tiles that wait for this one
  bool waits = false;                                    ///< for a tile of the pair
};

/// The tiles of a pair in claim order, which is topological: band after band, columns in the order in which a row group
/// adds them; in a band by steps, a tile's step being one more than those of the tiles of the band that it waits for.
/// A band of one column is that column from its first row to its last; head by head, a query head's part of it. Equal
/// for all pairs of equal rule.
struct PairTiles {
  std::vector<PairTile> tiles;
  std::vector<int64_t> band_begin;  ///< bands() + 1 positions
  double visited_pairs = 0;         ///< (row, key) pairs, after clipping strips

  [[nodiscard]] int64_t bands() const { return static_cast<int64_t>(band_begin.size()) - 1; }
};

/// FLOPs of a kept (query head, row, key): five products.
[[nodiscard]] inline double BackwardFlopsPerPair(const AttentionProblem& problem) {
  return 2 * static_cast<double>(3 * (problem.d + problem.d_rope) + 2 * problem.dv);
}

/// True when row groups take their columns from the last key to the first.
[[nodiscard]] bool ColumnsDescend(const RowRule& rule);

/// Number of tiles of a pair with all its columns, write-only ones included; may exceed what memory can hold.
[[nodiscard]] double CountPairTiles(const RowRule& rule, const BackwardCut& cut);

[[nodiscard]] PairTiles MakePairTiles(const RowRule& rule, const BackwardCut& cut);

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_TILES_H_
