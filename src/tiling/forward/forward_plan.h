#ifndef FA_TILING_FORWARD_PLAN_H_
#define FA_TILING_FORWARD_PLAN_H_

#include <cstdint>
#include <vector>

#include "core/task_graph.h"
#include "tiling/row_interval.h"
#include "tiling/tile_shape.h"

namespace fa::tiling {

/// One tile: rows [row_begin, row_end) of `heads` query heads, beginning with head_begin, against the keys that these
/// rows must visit. All these heads share kv head head_kv. The tile numbers its (row, head) pairs as folded rows:
/// folded row f is row row_begin + f / heads of head head_begin + f % heads.
struct ForwardItem {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  int64_t head_begin = 0;
  int64_t heads = 1;
  int64_t row_begin = 0, row_end = 0;
  Interval keys;      ///< smallest interval that holds the kept keys of the tile's rows
  int64_t cost = 0;   ///< number of key blocks visited, summed over strips; an empty row block still costs 1
  int32_t slot = -1;  ///< slot of its packed K and V; -1: K and V are read in place
  /// If the keys of the rows are cut into parts, each part is an item. The merge with number `merge` then joins the
  /// online-softmax states of the parts. This item is part number `part` of `parts`. The states of the merge begin at
  /// first_state, in the order of the parts. Items of one merge follow each other.
  int32_t part = 0, parts = 1;
  int32_t merge = -1;
  int64_t first_state = -1;
};

/// Packs key rows [row_begin, row_end) of one (sequence, kv head) into f32 panels of `slot`.
struct PackItem {
  int64_t sequence = 0;
  int64_t head_kv = 0;
  int64_t row_begin = 0, row_end = 0;
  int32_t slot = 0;
};

/// The plan of the dense forward as plain data. It is a pure function of (AttentionProblem, Machine). Task ids: tiles
/// [0, items.size()), then packs, then joins. A join does no work. It stands between the packs and the tiles of a head,
/// or between the tiles of a head and the packs that reuse its slot.
struct ForwardPlan {
  TileShape shape;
  std::vector<ForwardItem> items;
  std::vector<PackItem> packs;
  core::TaskGraph graph;
  bool pack_k = false, pack_v = false;
  /// Whether kernels for few rows prefetch rows of keys (BringsRows of the machine).
  bool brings_rows = false;
  /// The numbers of merges and of their states, for tiles whose keys are cut.
  int64_t merges = 0, states = 0;
  int64_t state_rows = 0;  ///< most rows of a tile whose keys are cut
  /// The number of slots. A slot holds the packed K and V of one head at a time, and there are at most workers + 1.
  int64_t kv_slots = 0;
  int64_t slot_rows = 0;                                ///< longest sk of a packed sequence, rounded up to 8
  double flops = 0, flops_full = 0, flops_visited = 0;  ///< floating-point operations, as in PlanInfo
  /// The worker that runs each task in the simulation. It is empty if workers have ranges of their own.
  std::vector<int> worker_of;
  std::vector<double> load;  ///< predicted time of each worker's tasks; the longest is 1
  double efficiency = 1;     ///< mean load of the workers, as a fraction of the predicted time of the run
};

}  // namespace fa::tiling

#endif  // FA_TILING_FORWARD_PLAN_H_
