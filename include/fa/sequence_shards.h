#ifndef FA_SEQUENCE_SHARDS_H_
#define FA_SEQUENCE_SHARDS_H_

/// @file
/// Which rows of a sequence each rank holds.
/// @code{.cpp}
/// fa::SequenceShards shards;
/// shards.cut = fa::SequenceShards::Cut::kZigzag;
/// shards.sq = shards.sk = 4096;
/// const auto rows = fa::RowsHeld(shards, shards.sq, /*rank=*/1, /*ranks=*/4);
/// if (!rows.ok()) return rows.status();
/// for (const auto& [begin, end] : *rows) std::printf("rows %ld to %ld\n", long{begin}, long{end});
/// @endcode

#include <cstdint>
#include <vector>

#include "fa/export.h"
#include "fa/status.h"

namespace fa {

/// The rows of the whole sequence that each rank holds, in the order in which the rank holds them.
struct SequenceShards {
  /// Rows [begin, end).
  struct Interval {
    int64_t begin = 0, end = 0;
  };
  /// How the rows are cut. A chunk has whole row units (Plan::Describe() names the unit), except that the last chunk
  /// takes the rest. Chunks are as equal as possible. A rank may hold no rows.
  enum class Cut : uint8_t {
    kContiguous,  ///< rank r of P holds chunk r of P
    kZigzag,      ///< there are 2P chunks, and rank r holds chunks r and 2P-1-r: equal work under a causal mask
    kIntervals,   ///< any intervals, which together cover [0, sq) once. Keys are cut at the same rows, so sk == sq
  };
  /// Which tensors are sent between ranks.
  enum class Strategy : uint8_t {
    kAuto,   ///< the strategy with the shorter predicted time
    kHeads,  ///< whole sequences of some heads are sent to each rank, and the results are sent back
    /// K and V, some heads at a time, are sent to every rank that sees these keys; queries and results stay.
    kSequence,
  };

  Cut cut = Cut::kZigzag;
  int64_t sq = 0, sk = 0;                        ///< rows of the whole sequence (TND: of all sequences together)
  std::vector<std::vector<Interval>> intervals;  ///< kIntervals: one list per rank
  Strategy strategy = Strategy::kAuto;
  /// The number of kv heads that a rank works on at a time. Besides its shards, a rank stores K and V of twice this
  /// number of heads, and in a backward also their dK and dV. 0 stands for one head in a forward. In a backward, 0 lets
  /// the plan choose, within 512 MiB per thread (docs/distributed.md).
  int64_t heads_in_flight = 0;
};

/// Returns the rows that `rank` of `ranks` holds on an axis of `rows` rows, in the order in which the rank holds them.
/// If rows = shards.sq, they are rows of q and out. If rows = shards.sk, they are rows of k and v. Neighbouring
/// intervals are joined, and no interval is empty.
/// @return kInvalidArgument, which says what is wrong with the shards
FA_API Result<std::vector<SequenceShards::Interval>> RowsHeld(const SequenceShards& shards, int64_t rows, int rank,
                                                              int ranks);

}  // namespace fa

#endif  // FA_SEQUENCE_SHARDS_H_
