#ifndef FA_RANKS_PLAN_CHAIN_GRAPH_H_
#define FA_RANKS_PLAN_CHAIN_GRAPH_H_

#include <cstdint>
#include <vector>

#include "ranks/plan/sequence_part.h"
#include "ranks/plan/sum_schedule.h"
#include "tiling/backward/backward_plan.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/problem.h"

namespace fa::tiling {

/// One block of sums that a rank adds in a unit. A rank computes its blocks in the order of ChainGraph::blocks.
struct ChainBlock {
  SumBlock of;
  int32_t tiles = 0;
  int32_t arrival = -1;  ///< index of the block's sums among the graph's arrivals; -1: no message brings the sums
  int32_t before = -1;  ///< this rank's previous block of the same chunk, which uses the same memory for sums; -1: none
  int32_t copy = 0;     ///< index of the copy that keeps K and V of the chunk, if tiles copy K and V

  [[nodiscard]] bool receives() const { return arrival >= 0; }
  [[nodiscard]] bool sends() const { return of.to >= 0 && of.to != of.rank; }
};

/// The graph of all tiles that one rank runs in a unit of the backward, if rows stay on their rank. Its edges:
/// - The first tile of a column waits for the arrival of the block's sums. If the chunk's previous block is on the same
///   rank, it waits for the last tile of that block's column instead.
/// - A tile waits for the tile of the same rows in the previous column.
/// - A column waits until the copy of K and V that it uses is free.
///
/// No edge leads to an earlier block. So no rank waits forever, as long as messages of earlier blocks do not wait for
/// messages of later blocks.
struct ChainGraph {
  /// BackwardItem::key_sums is an index into `blocks`; tiles of rows without keys belong to no block.
  BackwardPlan plan;
  std::vector<ChainBlock> blocks;
  int32_t copies = 0;
  int64_t copied_keys = 0;  ///< number of keys of the largest chunk, rounded up to whole columns
};

struct ChainCall {
  const std::vector<Sequence>& own;    ///< the rank's parts of rows, each as a sequence
  const std::vector<RowPart>& parts;   ///< for each member of `own`: its place in the call
  const std::vector<Sequence>& whole;  ///< the sequences of the call
  int64_t first_sequence = 0;          ///< first sequence of the unit
  int64_t group = 1, heads_kv = 1;
  int64_t block_q = 128, block_k = 128, strip_rows = 32;
  const std::vector<int64_t>& slot_row_of;  ///< becomes BackwardPlan::slot_row_of
  bool copies_keys = false;
  int workers = 1;
  int rank = 0;
};

/// The number of copies of K and V, each for one block. Two would be enough if only one block ran while the next one
/// started.
inline constexpr int32_t kKeyCopies = 4;

/// Returns a copy of part.rule whose sq is the part's number of rows. In part.rule, sq is the number of rows of the
/// whole sequence.
[[nodiscard]] RowRule OwnRule(const Sequence& part);

[[nodiscard]] ChainGraph MakeChainGraph(const SumSchedule& schedule, const ChainCall& call);

}  // namespace fa::tiling

#endif  // FA_RANKS_PLAN_CHAIN_GRAPH_H_
