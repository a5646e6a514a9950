#ifndef FA_RANKS_PLAN_SUM_SCHEDULE_H_
#define FA_RANKS_PLAN_SUM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "ranks/plan/row_shards.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// Most chunks of a unit whose sums travel. Each has its own message tag, and every transport has 32,768 tags.
inline constexpr int32_t kMostTravellingChunks = 32'000;

/// Columns of the backward begin at multiples of a divisor of this number.
inline constexpr int64_t kColumnKeys = 128;

/// Keys of a sequence whose sums of dK and dV travel through the ranks together.
struct SumChunk {
  int64_t sequence = 0;        ///< counted from the unit's first sequence
  Interval keys;               ///< keys of the sequence; they begin at a multiple of kColumnKeys
  int64_t at = 0;              ///< place of its sums among the unit's sums, in keys
  int last = -1;               ///< the rank that adds last; -1: no row keeps any of the keys
  int32_t travel_number = -1;  ///< its number among the chunks that travel; -1: one rank adds all
};

/// Rows of one rank against the keys of a chunk.
struct SumBlock {
  int32_t chunk = 0;
  int32_t rank = 0;
  Interval rows = {};      ///< rows of the sequence
  Interval heads = {};     ///< query heads of the group
  double seconds = 0;      ///< predicted time that it keeps the rank's workers busy; then the next block may start
  double late = 0;         ///< predicted time from then to its end, while tiles of the next blocks run
  int from = -1, to = -1;  ///< ranks that its sums come from and go to; -1: the sums begin, or end, here
  bool begins_heads = true, ends_heads = true;  ///< whether it is the first, or last, block of its heads in the chunk
};

/// Which rank adds what to which sums, and when. It is the chain of additions of one process, head after head of the
/// group, rows ascending, cut where rows are cut. In every row, chunks come in the order of its columns in one process.
struct SumSchedule {
  std::vector<SumChunk> chunks;
  std::vector<SumBlock> blocks;   ///< in one order of all ranks; every rank follows it, so none waits forever
  int64_t keys = 0;               ///< keys of all chunks
  int32_t travelling_chunks = 0;  ///< chunks whose sums travel
  bool few_chunks = false;        ///< so few chunks per part of rows that ranks wait for the last column of each block
};

/// The input of a schedule. The schedule is a pure function of its input, and is the same on every rank.
struct SumCall {
  const std::vector<Sequence>& sequences;
  Interval of;  ///< the sequences of the unit
  const RowShards& q;
  int64_t group = 1;          ///< query heads per kv head
  bool head_by_head = false;  ///< whether blocks have one query head even if one part has the whole chain
  int64_t heads_kv = 1;       ///< kv heads of the unit
  int workers = 1;            ///< threads of a rank; a chunk has a column for each of them, if there are so many
  double pair_seconds = 0;    ///< per kept (query head, row, key), with all workers
  double key_seconds = 0;     ///< to send the sums of one key of the unit
  double message_seconds = 0;
  int64_t memory_bytes = int64_t{1} << 47;  ///< memory that blocks may take
};

/// Rows per tile of a block. Columns run side by side, and each starts one tile after the previous column, since dQ has
/// an order. With smaller tiles the sums leave earlier, but tiles cost more by themselves. Smaller tiles help if chunks
/// are few; with more chunks, tiles of other blocks run meanwhile. The bits do not depend on the number of rows.
[[nodiscard]] int64_t TileRowsOfBlocks(int64_t rows, int64_t columns, int64_t columns_at_once, bool few_chunks);

/// The most blocks of a sequence of `sk` keys, whatever heads are in flight.
/// @param parts  parts of rows of all ranks
[[nodiscard]] int64_t MostSumBlocks(int64_t sk, int64_t parts, int64_t group);

/// @throws PlanTooLarge  if there are more blocks than numbers or memory for them, or more than kMostTravellingChunks
/// chunks that travel
[[nodiscard]] SumSchedule MakeSumSchedule(const SumCall& call);

/// The predicted time of `units` units, one after the other. Every rank keeps to its order, and begins a unit when it
/// has ended the unit before.
[[nodiscard]] double PredictedSeconds(const SumSchedule& schedule, const SumCall& call, int64_t units);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_SUM_SCHEDULE_H_
