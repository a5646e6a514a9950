#ifndef FA_OPS_RANKS_ROWS_UNIT_MESSAGES_H_
#define FA_OPS_RANKS_ROWS_UNIT_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/integer.h"
#include "ops/ranks/rows/row_tensor.h"
#include "tiling/ranks/rank_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Tags of what units bring and of what they send back, of the units in flight: 0 up to this. Others follow.
inline constexpr int kUnitTags = 2 * tiling::kUnitsInFlight;
/// Tags of rows that other ranks compute, and of their gradients: behind that of the sums of parameters.
inline constexpr int kMoveTag = kUnitTags + 1, kMoveBackTag = kUnitTags + 2;

/// What `bytes` take in a buffer in which something aligned follows.
[[nodiscard]] inline size_t AlignedBytes(int64_t bytes) {
  return static_cast<size_t>(core::RoundUp(bytes, static_cast<int64_t>(tiling::WorkspacePlan::kAlignment)));
}

/// Where rows that arrive are staged: needed intervals one after the other, each between rows that are 0. Kernels read
/// keys in steps, so they may touch a masked key next to a kept one.
struct StagedRows {
  std::vector<tiling::PlacedRows> runs;   ///< rows of the axis, ascending
  std::vector<tiling::PlacedRows> zeros;  ///< rows.size() rows from `at` on
  int64_t rows = 0;
  /// Kernels count rows from key 0, which need not be staged: `lead` rows before the first staged one, none of which is
  /// touched, make every such count positive.
  int64_t lead = 0;

  /// @param slack  rows of 0 before and after each interval
  StagedRows(std::span<const tiling::Interval> needed, int64_t slack);
  StagedRows() = default;

  /// Where the row lies; it is in a run.
  [[nodiscard]] int64_t Place(int64_t row) const;
};

/// The rows of one message, which lie in one place on the sender and in another on the receiver.
struct PeerRows {
  int peer = 0;
  tiling::Interval heads;  ///< kv heads
  std::vector<tiling::PlacedRows> queries, keys, every_key = {};
  int64_t bytes = 0;
  size_t offset = 0;  ///< in the buffer of all messages that are sent, or received, together

  [[nodiscard]] std::span<const tiling::PlacedRows> Of(tiling::RowAxis axis) const {
    switch (axis) {
      case tiling::RowAxis::kQuery: return queries;
      case tiling::RowAxis::kKey: return keys;
      case tiling::RowAxis::kEveryKey: break;
    }
    return every_key;
  }
};

/// What one rank sends and receives at a time, its own rows apart.
struct UnitMessages {
  std::vector<PeerRows> send, receive;
  PeerRows kept_from, kept_to;  ///< what it sends to itself: where it lies, and where it goes
  size_t send_bytes = 0, receive_bytes = 0;
};

/// Every rank's rows to the ranks that compute with them.
/// @param tensors  what travels
[[nodiscard]] UnitMessages MessagesIn(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                      const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                      const StagedRows& keys, std::span<const RowTensor> tensors);
/// Gradients of keys, from the ranks that have them in the end to those that hold the keys, where rows stay; tensors of
/// every key go to all ranks, where the unit's keys lie one after the other.
/// @param finished  FinishedKeys of `rank`
[[nodiscard]] UnitMessages MessagesHome(const tiling::RankCall& call, const tiling::RankUnit& unit, int rank,
                                        const StagedRows& finished, std::span<const RowTensor> tensors);
/// Query rows that other ranks compute where rows stay, to these ranks.
/// @param tensors  of queries
[[nodiscard]] UnitMessages MessagesMoved(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                         std::span<const RowTensor> tensors);
/// Their gradients back.
[[nodiscard]] UnitMessages MessagesMovedBack(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                             std::span<const RowTensor> tensors);
/// Writes 0 to the staged rows next to the needed keys, in tensors that are staged at staged + at[tensor].
void ClearSlack(std::span<const RowTensor> tensors, std::span<const size_t> at, const StagedRows& keys, int64_t heads,
                std::byte* staged);
/// Results back to the ranks that hold their rows: those of MessagesIn with sender and receiver exchanged. Tensors of
/// every key go to all ranks; the unit's keys lie one after the other, here and there.
[[nodiscard]] UnitMessages MessagesBack(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                        const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                        const StagedRows& keys, std::span<const RowTensor> tensors);

}  // namespace fa::ops

#endif  // FA_OPS_RANKS_ROWS_UNIT_MESSAGES_H_
