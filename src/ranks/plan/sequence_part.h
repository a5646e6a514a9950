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
  PlacedRows placed;  ///< placed.rows are rows of the sequence; placed.at is a position in the rank's tensors
  friend bool operator==(const RowPart&, const RowPart&) = default;
};

/// Returns the rows `rows` of a sequence as a sequence of its own, with the same keys. Row 0 of the result is row
/// rows.begin of `whole`. rule.sq and kept_by_all still describe all rows of `whole`. Both decide, for example, into
/// which parts keys are cut. So the rows get the same bits as in the whole sequence.
[[nodiscard]] Sequence PartOf(const Sequence& whole, Interval rows);

/// Returns the parts of the sequences in `of` that a rank holds, sequence after sequence, rows ascending. Row i of a
/// sequence is row q_offset + i of the query axis.
[[nodiscard]] std::vector<RowPart> PartsOf(std::span<const Sequence> sequences, Interval of,
                                           std::span<const PlacedRows> placed);

/// Rows of a sequence, and the rank that holds them.
struct RankPart {
  int rank = 0;
  PlacedRows placed;  ///< the rows' place, as in RowPart
};
/// Returns the parts of a sequence on all ranks, with rows ascending. In one process, rows are added to sums in this
/// order.
[[nodiscard]] std::vector<RankPart> PartsOfAllRanks(std::span<const Sequence> sequences, int64_t sequence,
                                                    const RowShards& q);

/// Returns the keys that some row of the parts keeps, as rows of the key axis.
/// @param unit  keys are rounded outwards to multiples of this number, counted from each sequence's first key
[[nodiscard]] std::vector<Interval> KeysSeen(std::span<const Sequence> sequences, std::span<const RowPart> parts,
                                             int64_t unit = 1);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_SEQUENCE_PART_H_
