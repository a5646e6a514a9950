#ifndef FA_RANKS_ROWS_UNIT_MESSAGES_H_
#define FA_RANKS_ROWS_UNIT_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/integer.h"
#include "ranks/plan/rank_plan.h"
#include "ranks/rows/row_tensor.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Tags below this one are for rows of the units in flight that arrive, and for results that they send back.
inline constexpr int kUnitTags = 2 * tiling::kUnitsInFlight;
/// Tags of moved rows and of their gradients. They follow the tag of the sums of parameters.
inline constexpr int kMoveTag = kUnitTags + 1, kMoveBackTag = kUnitTags + 2;

/// The size of a buffer of `bytes` if the next buffer must be aligned.
[[nodiscard]] inline size_t AlignedBytes(int64_t bytes) {
  return static_cast<size_t>(core::RoundUp(bytes, static_cast<int64_t>(tiling::WorkspacePlan::kAlignment)));
}

/// The places of staged rows: the needed intervals, one after the other, with rows of 0 around each. Kernels read
/// keys in steps, so they may touch a masked key next to a kept one.
struct StagedRows {
  std::vector<tiling::PlacedRows> runs;   ///< rows of the axis, ascending
  std::vector<tiling::PlacedRows> zeros;  ///< rows.size() rows of 0, beginning at `at`
  int64_t rows = 0;
  /// Rows before the first staged row, none of which is touched. Kernels count rows from key 0, which need not be
  /// staged; `lead` makes every such count positive.
  int64_t lead = 0;

  /// @param slack  rows of 0 before and after each interval
  StagedRows(std::span<const tiling::Interval> needed, int64_t slack);
  StagedRows() = default;

  /// The place of the row, which must be in a run.
  [[nodiscard]] int64_t Place(int64_t row) const;
};

/// The rows of one message, which has one place on the sender and another on the receiver.
struct PeerRows {
  int peer = 0;
  tiling::Interval heads;  ///< kv heads
  std::vector<tiling::PlacedRows> queries, keys, every_key = {};
  int64_t bytes = 0;
  size_t offset = 0;  ///< place in the buffer of all messages that are sent, or received, together

  [[nodiscard]] std::span<const tiling::PlacedRows> Of(tiling::RowAxis axis) const {
    switch (axis) {
      case tiling::RowAxis::kQuery: return queries;
      case tiling::RowAxis::kKey: return keys;
      case tiling::RowAxis::kEveryKey: break;
    }
    return every_key;
  }
};

/// The messages that one rank sends and receives for a unit. Rows that the rank keeps are in kept_from and kept_to.
struct UnitMessages {
  std::vector<PeerRows> send, receive;
  PeerRows kept_from, kept_to;  ///< rows that the rank keeps: their places before and after
  size_t send_bytes = 0, receive_bytes = 0;
};

/// Messages with every rank's rows for the ranks that compute with them.
/// @param tensors  tensors that travel
[[nodiscard]] UnitMessages MessagesIn(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                      const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                      const StagedRows& keys, std::span<const RowTensor> tensors);
/// If rows stay, messages with gradients of keys, from the ranks that finish them to the ranks that hold the keys.
/// Tensors of every key go to all ranks, on which the unit's keys lie one after the other.
/// @param finished  FinishedKeys of `rank`
[[nodiscard]] UnitMessages MessagesHome(const tiling::RankCall& call, const tiling::RankUnit& unit, int rank,
                                        const StagedRows& finished, std::span<const RowTensor> tensors);
/// If rows stay, messages with moved rows to the ranks that compute them.
/// @param tensors  tensors of queries
[[nodiscard]] UnitMessages MessagesMoved(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                         std::span<const RowTensor> tensors);
/// Messages with the gradients of moved rows, back to the ranks that hold the rows.
[[nodiscard]] UnitMessages MessagesMovedBack(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                             std::span<const RowTensor> tensors);
/// Writes 0 to the staged rows next to the needed keys. Tensor t is staged at staged + at[t].
void ClearSlack(std::span<const RowTensor> tensors, std::span<const size_t> at, const StagedRows& keys, int64_t heads,
                std::byte* staged);
/// Messages with results, back to the ranks that hold their rows: MessagesIn with sender and receiver exchanged.
/// Tensors of every key go to all ranks; on both sides the unit's keys lie one after the other.
[[nodiscard]] UnitMessages MessagesBack(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                        const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                        const StagedRows& keys, std::span<const RowTensor> tensors);

}  // namespace fa::ops

#endif  // FA_RANKS_ROWS_UNIT_MESSAGES_H_
