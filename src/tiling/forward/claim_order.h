#ifndef FA_TILING_CLAIM_ORDER_H_
#define FA_TILING_CLAIM_ORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tiling/forward/forward_plan.h"

namespace fa::tiling {

/// The tiles of one (sequence, kv head): items [item_begin, item_end), ordered by query head, then row block.
struct HeadTiles {
  int64_t item_begin = 0, item_end = 0;
  int64_t row_blocks = 1;
  bool uneven_rows = false;  ///< whether row blocks differ in weight, as with a causal mask
  Interval pack_keys;        ///< key rows to pack; empty: the tiles read K and V in place
};

/// Fills in the packs, the slots, the graph and kv_slots of a plan that already has its items. `durations` holds the
/// predicted time of each item; the function appends the times of packs and joins.
void OrderClaims(std::span<const HeadTiles> heads, const Machine& machine, ForwardPlan& plan,
                 std::vector<int64_t>& durations);

/// Returns another graph for a plan in which each packed head has a slot of its own. All workers claim from one list:
/// first the packs, then one join, which waits for all packs, then the items, the longest first. The list balances few
/// items better than ranges do. In return, all workers wait for the last pack, and they change heads more often.
[[nodiscard]] core::TaskGraph LongestFirst(const ForwardPlan& plan, std::span<const int64_t> durations);

}  // namespace fa::tiling

#endif  // FA_TILING_CLAIM_ORDER_H_
