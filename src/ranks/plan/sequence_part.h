#ifndef FA_RANKS_PLAN_SEQUENCE_PART_H_
#define FA_RANKS_PLAN_SEQUENCE_PART_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ranks/plan/row_shards.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Rows of one sequence that a rank holds one after the other.
struct RowPart {
  int64_t sequence = 0;
  PlacedRows placed;  ///< its `rows` count in the sequence, its `at` in the rank's tensors
  friend bool operator==(const RowPart&, const RowPart&) = default;
};

/// `rows` of a sequence as a sequence by itself, against the same keys. Its row 0 is rows.begin. Its rule keeps the
/// number of all rows (rule.sq), and Sequence::kept_by_all is about all rows. All choices that decide bits follow from
/// these two: kernels for few rows, the keys that rows attend to, parts of long keys, the flat index of dropout. So the
/// rows get the bits that they have in the whole sequence.
[[nodiscard]] Sequence PartOf(const Sequence& whole, Interval rows);

/// The parts of the sequences `of` that a rank holds, sequence after sequence, rows ascending. Row i of a sequence is
/// row q_offset + i of the axis.
[[nodiscard]] std::vector<RowPart> PartsOf(std::span<const Sequence> sequences, Interval of,
                                           std::span<const PlacedRows> placed);

/// Rows of a sequence, and the rank that holds them.
struct RankPart {
  int rank = 0;
  PlacedRows placed;  ///< the rows' place, as in RowPart
};
/// All parts of a sequence, rows ascending. One process adds the contributions of rows in this order.
[[nodiscard]] std::vector<RankPart> PartsOfAllRanks(std::span<const Sequence> sequences, int64_t sequence,
                                                    const RowShards& q);

/// The keys that some row of the parts keeps, as rows of the key axis.
/// @param unit  keys are rounded to whole units of so many, counted from each sequence's first key
[[nodiscard]] std::vector<Interval> KeysSeen(std::span<const Sequence> sequences, std::span<const RowPart> parts,
                                             int64_t unit = 1);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_SEQUENCE_PART_H_
