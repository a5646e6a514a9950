#ifndef FA_TILING_ROW_CUT_H_
#define FA_TILING_ROW_CUT_H_

#include <cstdint>

#include "tiling/row_interval.h"

namespace fa::tiling {

/// How the query rows that share one kv head are cut into tiles: `head_chunks` groups of up to `heads` query heads,
/// each cut into `row_blocks` blocks of up to `rows` rows.
struct RowCut {
  int64_t heads = 1, head_chunks = 1;
  int64_t rows = 0, row_blocks = 0;

  [[nodiscard]] int64_t tiles() const { return head_chunks * row_blocks; }
  [[nodiscard]] bool folded() const { return heads > 1; }
};

/// Cuts the rows. If there are few query rows, the heads that share a kv head are folded into the rows of one tile. So
/// K and V are read once for all these heads. Otherwise a tile has one head, and rows are spread evenly over as few
/// blocks as block_q allows. In an unfolded cut every block except the last has a multiple of strip_rows rows. sq must
/// be > 0.
[[nodiscard]] RowCut CutRows(int64_t sq, int64_t group, int64_t block_q, int64_t strip_rows);

/// The work of one tile. Each strip of strip_rows folded rows visits the smallest interval that holds the keys its rows
/// keep. Both ends are moved out to multiples of kKeyStep.
struct TileWork {
  Interval keys;       ///< smallest interval that holds the kept keys of all rows
  int64_t blocks = 0;  ///< number of key blocks visited, summed over strips
  double pairs = 0;    ///< number of (row, key) pairs visited
  int64_t weight = 0;  ///< predicted time; the unit is the time of one strip with one key
};

/// Strips are clipped to their keys in steps of this many keys, which is the number of keys of the widest register
/// block for f32 (8x48). The step is even, so that the softmax's even and odd partial sums do not depend on where a
/// strip starts.
inline constexpr int64_t kKeyStep = 8;

/// Returns the work of rows `rows` of the sequence, with `heads` folded heads, against blocks of block_k keys. The
/// blocks start at multiples of block_k.
[[nodiscard]] TileWork MeasureTile(const RowRule& rule, Interval rows, int64_t heads, int64_t strip_rows,
                                   int64_t block_k);

}  // namespace fa::tiling

#endif  // FA_TILING_ROW_CUT_H_
