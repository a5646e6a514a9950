#ifndef FA_TILING_RANKS_SUM_SCHEDULE_H_
#define FA_TILING_RANKS_SUM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "tiling/problem.h"
#include "tiling/ranks/row_shards.h"

namespace fa::tiling {

/// Chunks of a unit whose sums travel, at most: each is a tag of messages, of which every transport has 32,768.
inline constexpr int32_t kMostTravellingChunks = 32'000;

/// Columns of the backward begin at multiples of a divisor of this.
inline constexpr int64_t kColumnKeys = 128;

/// Keys of a sequence whose sums of dK and dV travel through the ranks together.
struct SumChunk {
  int64_t sequence = 0;        ///< counted from the first of the unit
  Interval keys;               ///< of the sequence; begins at a multiple of kColumnKeys
  int64_t at = 0;              ///< where its sums begin among those of the unit, in keys
  int last = -1;               ///< the rank that adds to them last; -1: no row keeps any of the keys
  int32_t travel_number = -1;  ///< its number among the chunks whose sums travel; -1: one rank adds all
};

/// Rows of one rank against the keys of a chunk.
struct SumBlock {
  int32_t chunk = 0;
  int32_t rank = 0;
  Interval rows = {};      ///< of the sequence
  Interval heads = {};     ///< query heads of the group
  double seconds = 0;      ///< predicted: for so long it keeps the rank's workers busy; then the next block may start
  double late = 0;         ///< predicted: so much later its last column ends, while tiles of the next blocks run
  int from = -1, to = -1;  ///< the rank that the sums come from, and go to; -1: they begin, or end, here
  bool begins_heads = true, ends_heads = true;  ///< first, last of the chunk's blocks of its heads
};

/// Who adds what to which sums, and when: the chain of additions of one process - head after head of the group, rows
/// ascending - cut where rows are cut. In every row, chunks come in the order of its columns in one process.
struct SumSchedule {
  std::vector<SumChunk> chunks;
  std::vector<SumBlock> blocks;   ///< in one order of all ranks, each of which follows it: none waits for ever
  int64_t keys = 0;               ///< of all chunks
  int32_t travelling_chunks = 0;  ///< chunks whose sums travel
  bool few_chunks = false;        ///< so few per part of rows that ranks wait for the last column of each
};

/// What a schedule follows from. It is a pure function of this, the same on every rank.
struct SumCall {
  const std::vector<Sequence>& sequences;
  Interval of;  ///< the sequences of the unit
  const RowShards& q;
  int64_t group = 1;          ///< query heads per kv head
  bool head_by_head = false;  ///< blocks of one query head even where one part has the whole chain
  int64_t heads_kv = 1;       ///< of the unit
  int workers = 1;            ///< of a rank: a chunk has columns for all of them, if there are so many
  double pair_seconds = 0;    ///< of one kept (query head, row, key), with all workers at it
  double key_seconds = 0;     ///< of sending the sums of one key of the unit
  double message_seconds = 0;
  int64_t memory_bytes = int64_t{1} << 47;  ///< that blocks may take
};

/// Rows per tile of a block: each of the columns that are worked on side by side starts one tile behind the one before
/// it, since dQ has an order, so with smaller tiles the sums leave earlier, and tiles cost more of themselves. That
/// helps where chunks are few; else other blocks' tiles run meanwhile. Bits do not follow it.
[[nodiscard]] int64_t TileRowsOfBlocks(int64_t rows, int64_t columns, int64_t columns_at_once, bool few_chunks);

/// Blocks of a sequence of `sk` keys, at most, whatever heads are in flight.
/// @param parts  of rows, of all ranks
[[nodiscard]] int64_t MostSumBlocks(int64_t sk, int64_t parts, int64_t group);

/// @throws PlanTooLarge  more blocks than have a number, or than memory holds; more than
/// kMostTravellingChunks chunks that travel
[[nodiscard]] SumSchedule MakeSumSchedule(const SumCall& call);

/// Predicted, of `units` units one after the other: every rank keeps to its order and begins a unit when it has ended
/// the one before.
[[nodiscard]] double PredictedSeconds(const SumSchedule& schedule, const SumCall& call, int64_t units);

}  // namespace fa::tiling

#endif  // FA_TILING_RANKS_SUM_SCHEDULE_H_
