#ifndef FA_OPS_RANKS_CALL_CUT_ROWS_H_
#define FA_OPS_RANKS_CALL_CUT_ROWS_H_

#include <cstdint>

#include "fa/sequence_shards.h"
#include "fa/status.h"
#include "tiling/ranks/rank_plan.h"

namespace fa::ops {

/// "contiguous", "zigzag" or "intervals".
[[nodiscard]] const char* Name(SequenceShards::Cut cut);

/// Finds what is wrong with the shards themselves, whatever rows there are.
[[nodiscard]] Status CheckShards(const SequenceShards& shards, int ranks);

/// The rows of each rank, of an axis of `rows`: those of q, or those of k.
[[nodiscard]] Result<tiling::RowShards> CutRows(const SequenceShards& shards, int64_t rows, int ranks);

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_CALL_CUT_ROWS_H_
