#ifndef FA_TILING_RANKS_CHAIN_GRAPH_H_
#define FA_TILING_RANKS_CHAIN_GRAPH_H_

#include <cstdint>
#include <vector>

#include "tiling/backward/backward_plan.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/problem.h"
#include "tiling/ranks/sequence_part.h"
#include "tiling/ranks/sum_schedule.h"

namespace fa::tiling {

/// One of a rank's blocks of a unit, in the rank's order.
struct ChainBlock {
  SumBlock of;
  int32_t tiles = 0;
  int32_t gate = -1;    ///< opened when its sums have come from another rank; -1: they are there
  int32_t before = -1;  ///< the block before of the same chunk on this rank, whose sums lie where this one's do
  int32_t copy = 0;     ///< where it keeps K and V of its chunk, if tiles copy them

  [[nodiscard]] bool receives() const { return gate >= 0; }
  [[nodiscard]] bool sends() const { return of.to >= 0 && of.to != of.rank; }
};

/// All tiles of one rank in a unit of the backward whose rows stay, as one graph. A block's columns wait at its gate,
/// or for the same columns of the block before in the chain of its chunk; rows wait for the columns before; and a
/// column waits until the copy of K and V that it takes is free. Each of these edges leads from an earlier block to a
/// later one of the rank's order, so as long as messages of earlier blocks do not wait for later ones, no rank waits
/// for ever.
struct ChainGraph {
  BackwardPlan plan;  ///< BackwardItem::block: of `blocks`; items of no block are rows without keys
  std::vector<ChainBlock> blocks;
  int32_t copies = 0;
  int64_t copied_keys = 0;  ///< of the largest chunk, whole columns
};

struct ChainCall {
  const std::vector<Sequence>& own;    ///< the rank's parts of rows as sequences of their own
  const std::vector<RowPart>& parts;   ///< what each of them is a part of
  const std::vector<Sequence>& whole;  ///< of the call
  int64_t first_sequence = 0;          ///< of the unit
  int64_t group = 1, heads_kv = 1;
  int64_t block_q = 128, block_k = 128, strip_rows = 32;
  const std::vector<int64_t>& slot_row_of;  ///< BackwardPlan::slot_row_of
  bool copies_keys = false;
  int workers = 1;
  int rank = 0;
};

/// Blocks whose copies of K and V have room at the same time. Two are enough as long as blocks follow each other.
inline constexpr int32_t kKeyCopies = 4;

/// The rule of a part's own rows alone: a part keeps the number of all rows.
[[nodiscard]] RowRule OwnRule(const Sequence& part);

[[nodiscard]] ChainGraph MakeChainGraph(const SumSchedule& schedule, const ChainCall& call);

}  // namespace fa::tiling

#endif  // FA_TILING_RANKS_CHAIN_GRAPH_H_
