#ifndef FA_RANKS_PLAN_SUM_SCHEDULE_H_
#define FA_RANKS_PLAN_SUM_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "ranks/plan/row_shards.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// The largest number of chunks of a unit whose sums go from rank to rank. Each such chunk has a message tag of its
/// own, and every transport has 32,768 tags.
inline constexpr int32_t kMostTravellingChunks = 32'000;

/// The number of keys of a column in schedules of sums. In every backward this number is a multiple of block_k, so a
/// tile's column begins at each multiple of this number.
inline constexpr int64_t kColumnKeys = 128;

/// Some keys of a sequence, whose sums of dK and dV go from rank to rank in one message.
struct SumChunk {
  int64_t sequence = 0;  ///< number of the sequence, counted from the unit's first sequence
  Interval keys;         ///< keys of the sequence, which begin at a multiple of kColumnKeys
  int64_t at = 0;        ///< position of the chunk's sums among the unit's sums, in keys
  int last = -1;         ///< the rank that adds last; -1: no row keeps any of the keys
  /// Index among the chunks whose sums go from rank to rank; -1: one rank adds all blocks of the chunk.
  int32_t travel_number = -1;
};

/// The rows that one rank adds to the sums of a chunk.
struct SumBlock {
  int32_t chunk = 0;
  int32_t rank = 0;
  Interval rows = {};      ///< rows of the sequence
  Interval heads = {};     ///< query heads of the group
  double seconds = 0;      ///< predicted time for which the block keeps the rank's workers busy
  double late = 0;         ///< predicted time from the end of `seconds` until the block's last column ends
  int from = -1, to = -1;  ///< ranks that the block's sums come from and go to; -1: the sums begin, or end, here
  /// Whether the block is the first, or the last, of its chunk with these heads.
  bool begins_heads = true, ends_heads = true;
};

/// The order in which ranks add their blocks to the sums. In each chunk, blocks are added in the order of one process:
/// head after head of the group, and rows ascending within a head. A block ends where the rows of a rank end. Every row
/// takes the chunks in the order in which one process takes their columns.
struct SumSchedule {
  std::vector<SumChunk> chunks;
  /// The blocks of all ranks in one order. Every rank follows this order, so no rank waits forever.
  std::vector<SumBlock> blocks;
  int64_t keys = 0;               ///< number of keys of all chunks
  int32_t travelling_chunks = 0;  ///< number of chunks whose sums go from rank to rank
  /// Whether there are so few chunks per part of rows that ranks wait for a block's last column.
  bool few_chunks = false;
};

/// The input of MakeSumSchedule. The schedule depends on nothing else, so it is the same on every rank.
struct SumCall {
  const std::vector<Sequence>& sequences;
  Interval of;  ///< the sequences of the unit
  const RowShards& q;
  int64_t group = 1;          ///< number of query heads per kv head
  bool head_by_head = false;  ///< whether each block has one query head even if one rank holds all rows of a sequence
  int64_t heads_kv = 1;       ///< number of kv heads of the unit
  int workers = 1;            ///< threads per rank; if there are enough columns, a chunk has a column for every thread
  double pair_seconds = 0;    ///< time per kept (query head, row, key) if all workers compute
  double key_seconds = 0;     ///< time to send the sums of one key of the unit
  double message_seconds = 0;
  int64_t memory_bytes = int64_t{1} << 47;  ///< memory that blocks may take
};

/// Returns the number of rows per tile of a block. With smaller tiles the sums can be sent earlier, but the tiles
/// together take longer. So smaller tiles help only if there are few chunks. The number changes no bits.
[[nodiscard]] int64_t TileRowsOfBlocks(int64_t rows, int64_t columns, int64_t columns_at_once, bool few_chunks);

/// Returns an upper bound of the number of blocks of a sequence of `sk` keys, for any number of heads in flight.
/// @param parts  the number of the sequence's parts on all ranks
[[nodiscard]] int64_t MostSumBlocks(int64_t sk, int64_t parts, int64_t group);

/// Makes the schedule of a unit.
/// @throws PlanTooLarge if 32-bit indices or the memory do not suffice for the blocks, or if more than
/// kMostTravellingChunks chunks have sums that go from rank to rank
[[nodiscard]] SumSchedule MakeSumSchedule(const SumCall& call);

/// Returns the predicted time of `units` units. Every rank computes its blocks in their order, one unit after the
/// other.
[[nodiscard]] double PredictedSeconds(const SumSchedule& schedule, const SumCall& call, int64_t units);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_SUM_SCHEDULE_H_
