#ifndef FA_SEQUENCE_SHARDS_H_
#define FA_SEQUENCE_SHARDS_H_

#include <cstdint>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"

namespace fa {

/// Rows of the whole sequence that each rank holds, in the order in which it holds them.
struct SequenceShards {
  /// Rows [begin, end).
  struct Interval {
    int64_t begin = 0, end = 0;
  };
  /// Chunks are as equal as whole row units allow (Plan::Describe() names the unit); the last takes the rest. A rank
  /// may hold no rows.
  enum class Cut : uint8_t {
    kContiguous,  ///< rank r of P: chunk r of P
    kZigzag,      ///< 2P chunks; rank r: chunk r, then chunk 2P-1-r: even work under a causal mask
    kIntervals,   ///< any intervals; together they cover [0, sq) once. Keys are cut at the same rows: sk == sq
  };
  /// What travels.
  enum class Strategy : uint8_t {
    kAuto,      ///< the one with the shorter predicted time
    kHeads,     ///< whole sequences of some heads to each rank, and the results back
    kSequence,  ///< K and V of the heads in flight to every rank that sees them; queries and results stay
  };

  Cut cut = Cut::kZigzag;
  int64_t sq = 0, sk = 0;                        ///< rows of the whole sequence (TND: tokens of the whole pack)
  std::vector<std::vector<Interval>> intervals;  ///< kIntervals: a list per rank
  Strategy strategy = Strategy::kAuto;
  /// kv heads that a rank works on at a time: its memory beyond its shards is K and V of twice so many (with the sums
  /// of dK and dV, backward). 0: one; backward: so many that ranks are predicted to wait little, within 512 MiB per
  /// thread (docs/distributed.md).
  int64_t heads_in_flight = 0;
};

/// The rows that `rank` of `ranks` holds of an axis of `rows`, in the order in which it holds them: of q and out with
/// rows = shards.sq, of k and v with shards.sk. Neighbouring intervals are one; none is empty.
/// @return kInvalidArgument naming what is wrong with the shards
FA_API Result<std::vector<SequenceShards::Interval>> RowsHeld(const SequenceShards& shards, int64_t rows, int rank,
                                                              int ranks);

}  // namespace fa

#endif  // FA_SEQUENCE_SHARDS_H_
