#ifndef FA_TILING_BACKWARD_PLAN_H_
#define FA_TILING_BACKWARD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"

namespace fa::tiling {

/// One tile of the backward: a column of keys against a group of rows of one query head. It adds to the column's dK and
/// dV and to the rows' dQ. The first tile of a row group packs its Q, dO and row statistics, the last one writes its
/// dQ; the first tile of a column packs its K and V where needed, the last one writes dK and dV.
struct BackwardItem {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  int64_t head = 0;                    ///< query head
  int32_t block = 0;                   ///< whose sums of its columns these are, where they outlive the graph
  int32_t slot = 0;                    ///< whose buffers its (sequence, kv head) uses
  int64_t row_begin = 0, row_end = 0;  ///< empty: a column that no row visits; its dK and dV are written 0
  int64_t key_begin = 0, key_end = 0;  ///< empty: rows without keys; their dQ is written 0
  bool first_of_rows = false, last_of_rows = false;
  bool first_of_column = false, last_of_column = false;
  int64_t cost = 0;  ///< visited (strip, 8 keys) groups
};

/// The dense backward as plain data, a pure function of (AttentionProblem, Machine). Bits depend on block_k and on the
/// direction of the columns, which follow the sequence's own shape, mask and ISA alone; block_q, slots and claims do
/// not touch them.
///
/// Task ids: tiles [0, items.size()) in claim order, then joins (no work: between the tiles of a head and the tiles
/// that reuse its slot).
/// Edges: a column's tiles in order of (head, rows), so that dK and dV have one order of additions; a row group's tiles
/// in the order of its columns, and so for dQ; head by head, the first of a row group's tiles behind the last one of
/// the head before. Columns go in descending order when the mask cuts the first row's keys (causal, bands): row block i
/// then takes columns i, i-1, ..., 0, every column can start at its own diagonal at once; else in ascending order. All
/// workers claim from one list (TaskGraph::shared_claims): a tile's successor in its column is the first of its
/// successors, so that a worker walks a column as long as it can.
struct BackwardPlan {
  int64_t block_q = 128;  ///< rows of a tile
  int64_t block_k = 128;  ///< keys of a column
  std::string reason;
  std::vector<BackwardItem> items;
  core::TaskGraph graph;
  int64_t slots = 0;  ///< (sequence, kv head) pairs in flight
  /// The query heads of a pair use the same rows of its slot, one head after the other.
  bool head_by_head = false;
  /// Per sequence: where its rows begin in a slot; empty: each has a slot of its own.
  std::vector<int64_t> slot_row_of;
  int64_t slot_rows = 0;  ///< of the largest pair: sq rounded up to block_q; group times that unless head_by_head
  int64_t slot_keys = 0;  ///< longest sk, rounded up to block_k
  double flops = 0, flops_full = 0, flops_visited = 0;  ///< 4 d + ... : 2 * (3 (d + d_rope) + 2 dv) per pair
  std::vector<double> load;
  double efficiency = 1;
};

}  // namespace fa::tiling

#endif  // FA_TILING_BACKWARD_PLAN_H_
