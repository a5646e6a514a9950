#ifndef FA_TILING_BACKWARD_PLAN_H_
#define FA_TILING_BACKWARD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// One tile of the backward: the keys of one column and one group of rows of one query head. The tile adds to the
/// column's dK and dV and to the rows' dQ. The first tile of a row group packs Q, dO and the row statistics, and the
/// last one writes dQ. The first tile of a column packs K and V if needed, and the last tile writes dK and dV.
struct BackwardItem {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  int64_t head = 0;                    ///< the tile's query head
  int32_t key_sums = 0;                ///< index of the tile's sums, if sums of keys outlive the run of the graph
  int32_t slot = 0;                    ///< index of the slot, which has the buffers of the tile's (sequence, kv head)
  int64_t row_begin = 0, row_end = 0;  ///< rows; empty: no row visits the column, so its dK and dV are 0
  int64_t key_begin = 0, key_end = 0;  ///< keys; empty: the rows have no keys, so their dQ is 0
  bool first_of_rows = false, last_of_rows = false;
  bool first_of_column = false, last_of_column = false;
  int64_t cost = 0;  ///< number of groups of kKeyStep keys that the tile visits, summed over its strips
};

/// The plan of the dense backward as plain data. It is a pure function of (AttentionProblem, Machine). Bits depend on
/// block_k and on the direction of the columns. block_k depends on d, d_rope, dv and the ISA; the direction depends on
/// the sequence's mask. block_q, slots and the order of claims change no bits.
///
/// Task ids: tiles [0, items.size()) in claim order, then joins. A join does no work. It waits for the tiles of one
/// (sequence, kv head) and releases the tiles of the next one in the same slot.
///
/// Edges:
/// - The tiles of a column run one after the other, ordered by head and then by rows. So terms are added to dK and dV
///   in one fixed order.
/// - The tiles of a row group run one after the other in the order of its columns. So terms are added to dQ in one
///   fixed order too.
/// - With head_by_head, the first tile of a row group waits for the previous head's last tile of the same rows.
///
/// Columns descend if the mask cuts the first row's keys (causal, bands). Row block i then takes columns i, i-1, ...,
/// 0, so every column can start at its own diagonal at once. Otherwise columns ascend. All workers claim from one list
/// (TaskGraph::shared_claims). The first successor of a tile is the next tile of its column, so a worker walks a column
/// as long as it can.
struct BackwardPlan {
  int64_t block_q = 128;  ///< rows of a tile
  int64_t block_k = 128;  ///< number of keys of a column
  std::string reason;
  std::vector<BackwardItem> items;
  core::TaskGraph graph;
  int64_t slots = 0;  ///< number of (sequence, kv head) pairs in flight
  /// Whether the query heads of a pair are computed one after the other, in the same rows of its slot.
  bool head_by_head = false;
  /// For each sequence, the row in the slot at which its rows begin. Empty: the rows of every sequence begin at row 0.
  std::vector<int64_t> slot_row_of;
  /// Number of rows of the largest pair: sq rounded up to block_q, times the group unless head_by_head.
  int64_t slot_rows = 0;
  int64_t slot_keys = 0;  ///< longest sk, rounded up to block_k
  /// Floating-point operations, as in PlanInfo. A (row, key) pair takes 2 * (3 (d + d_rope) + 2 dv).
  double flops = 0, flops_full = 0, flops_visited = 0;
  std::vector<double> load;
  double efficiency = 1;
};

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_PLAN_H_
