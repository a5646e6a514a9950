#ifndef FA_TILING_PACK_ORDER_H_
#define FA_TILING_PACK_ORDER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "tiling/forward/claim_order.h"
#include "tiling/forward/forward_plan.h"

namespace fa::tiling {

/// A head whose K or V is packed. Its packs [pack_begin, pack_end) run first, then join_in, then its tiles. If the
/// packed head `successor` reuses the slot, the packs of that head wait for join_out, which waits for the tiles of this
/// head.
struct PackedHead {
  int64_t head = 0;  ///< index of the head's HeadTiles
  int64_t item_begin = 0, item_end = 0;
  int64_t pack_begin = 0, pack_end = 0;
  int64_t pack_duration = 0;  ///< predicted time of all its packs together
  int32_t slot = 0;
  bool slot_is_free = true;  ///< whether no earlier head uses the slot
  int64_t successor = -1;
  int32_t join_in = -1, join_out = -1;
};

/// Fills in plan.packs except their slots, and appends their predicted times to `durations`. @throws PlanTooLarge
[[nodiscard]] std::vector<PackedHead> CutIntoPacks(std::span<const HeadTiles> heads, const Machine& machine,
                                                   ForwardPlan& plan, std::vector<int64_t>& durations);

/// Gives each packed head a slot. `cuts` are the workers' ranges of tiles. If there are at most workers + 1 packed
/// heads, each has a slot of its own. Otherwise each worker has one slot, for the heads that start in its range, one
/// after the other. A head that fills the whole range of a later worker gets a slot of its own. Fills in plan.kv_slots
/// and the slots of packs and items.
void AssignSlots(std::span<const int64_t> cuts, std::span<PackedHead> packed, ForwardPlan& plan);

/// Adds the joins and edges to plan.graph, and a time of 0 per join to `durations`.
void AddPackEdges(std::span<PackedHead> packed, ForwardPlan& plan, std::vector<int64_t>& durations);

/// Makes graph.order and graph.range_begin from the ranges `cuts` of the tiles in `item_order`. An empty item_order
/// means that the tiles keep their order.
void OrderWithPacks(std::span<const HeadTiles> heads, std::span<const PackedHead> packed,
                    std::span<const int32_t> item_order, std::span<const int64_t> cuts, core::TaskGraph& graph);

}  // namespace fa::tiling

#endif  // FA_TILING_PACK_ORDER_H_
