#ifndef FA_RANKS_CALL_CUT_ROWS_H_
#define FA_RANKS_CALL_CUT_ROWS_H_

#include <cstdint>

#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "ranks/plan/rank_plan.h"

namespace fa::ops {

/// Returns "contiguous", "zigzag" or "intervals".
[[nodiscard]] const char* Name(SequenceShards::Cut cut);

/// Finds the errors in `shards` that do not depend on the number of rows.
[[nodiscard]] Status CheckShards(const SequenceShards& shards, int ranks);

/// Returns the rows that each rank holds on an axis of `rows` rows, which is the axis of queries or of keys.
[[nodiscard]] Result<tiling::RowShards> CutRows(const SequenceShards& shards, int64_t rows, int ranks);

}  // namespace fa::ops

#endif  // FA_RANKS_CALL_CUT_ROWS_H_
