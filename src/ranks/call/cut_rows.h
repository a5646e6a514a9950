#ifndef FA_RANKS_CALL_CUT_ROWS_H_
#define FA_RANKS_CALL_CUT_ROWS_H_

#include <cstdint>

#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "ranks/plan/rank_plan.h"

namespace fa::ops {

/// "contiguous", "zigzag" or "intervals".
[[nodiscard]] const char* Name(SequenceShards::Cut cut);

/// Finds errors of the shards themselves, whatever rows there are.
[[nodiscard]] Status CheckShards(const SequenceShards& shards, int ranks);

/// The rows that each rank holds on an axis of `rows`, which are rows of q or of k.
[[nodiscard]] Result<tiling::RowShards> CutRows(const SequenceShards& shards, int64_t rows, int ranks);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_CUT_ROWS_H_
