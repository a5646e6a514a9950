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

/// The number of message tags for units. Each unit in flight has one tag for its rows and one for its results.
inline constexpr int kUnitTags = 2 * tiling::kUnitsInFlight;
/// Tags of moved rows and of their gradients. Both tags follow the tag of the sums for dsink and dslopes.
inline constexpr int kMoveTag = kUnitTags + 1, kMoveBackTag = kUnitTags + 2;

/// Returns the size of a buffer of `bytes` bytes, rounded up so that the next buffer is aligned.
[[nodiscard]] inline size_t AlignedBytes(int64_t bytes) {
  return static_cast<size_t>(core::RoundUp(bytes, static_cast<int64_t>(tiling::WorkspacePlan::kAlignment)));
}

/// Where staged rows lie. The needed intervals lie one after the other, with rows of zeros before and after each.
/// Kernels read keys in steps, so they may read a masked key next to a kept key.
struct StagedRows {
  std::vector<tiling::PlacedRows> runs;   ///< the staged rows of the axis, ascending
  std::vector<tiling::PlacedRows> zeros;  ///< each has rows.size() rows of zeros, which begin at `at`
  int64_t rows = 0;
  /// Kernels count rows from key 0, which need not be staged. So the position of key 0 may lie this many rows before
  /// the first staged row. Nobody reads the rows between.
  int64_t lead = 0;

  /// Lays out the intervals `needed`.
  /// @param slack  the number of rows of 0 before and after each interval
  StagedRows(std::span<const tiling::Interval> needed, int64_t slack);
  StagedRows() = default;

  /// Returns the position of `row`, which must be in one of the runs.
  [[nodiscard]] int64_t Place(int64_t row) const;
};

/// The rows of one message, with their positions on this rank.
struct PeerRows {
  int peer = 0;
  tiling::Interval heads;  ///< kv heads
  std::vector<tiling::PlacedRows> queries, keys, every_key = {};
  int64_t bytes = 0;
  size_t offset = 0;  ///< offset of the message in the send buffer or in the receive buffer

  [[nodiscard]] std::span<const tiling::PlacedRows> Of(tiling::RowAxis axis) const {
    switch (axis) {
      case tiling::RowAxis::kQuery: return queries;
      case tiling::RowAxis::kKey: return keys;
      case tiling::RowAxis::kEveryKey: break;
    }
    return every_key;
  }
};

/// The messages that one rank sends and receives for a unit.
struct UnitMessages {
  std::vector<PeerRows> send, receive;
  PeerRows kept_from, kept_to;  ///< where rows that the rank keeps for itself are copied from and to
  size_t send_bytes = 0, receive_bytes = 0;
};

/// Returns the messages that carry every rank's rows to the ranks that compute with them.
/// @param tensors  the tensors that are sent
[[nodiscard]] UnitMessages MessagesIn(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                      const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                      const StagedRows& keys, std::span<const RowTensor> tensors);
/// With kSequence, returns the messages that carry finished gradients of keys to the ranks that hold the keys. Tensors
/// with RowAxis::kEveryKey go to all ranks. On the receiving rank the unit's keys lie one after the other.
/// @param finished  where FinishedKeys of `rank` lie
[[nodiscard]] UnitMessages MessagesHome(const tiling::RankCall& call, const tiling::RankUnit& unit, int rank,
                                        const StagedRows& finished, std::span<const RowTensor> tensors);
/// With kSequence, returns the messages that carry moved rows to the ranks that compute them.
/// @param tensors  the tensors of queries that are sent
[[nodiscard]] UnitMessages MessagesMoved(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                         std::span<const RowTensor> tensors);
/// Returns the messages that carry the gradients of moved rows back to the ranks that hold the rows.
[[nodiscard]] UnitMessages MessagesMovedBack(const tiling::RankCall& call, const tiling::RankPlan& plan, int rank,
                                             std::span<const RowTensor> tensors);
/// Writes 0 to the staged rows next to the needed keys. Tensor t is staged at staged + at[t].
void ClearSlack(std::span<const RowTensor> tensors, std::span<const size_t> at, const StagedRows& keys, int64_t heads,
                std::byte* staged);
/// Returns the messages that carry results back to the ranks that hold their rows. The result is the messages of
/// MessagesIn with sender and receiver exchanged. Tensors with RowAxis::kEveryKey go to all ranks, and on both sides
/// the unit's keys lie one after the other.
[[nodiscard]] UnitMessages MessagesBack(const tiling::RankCall& call, const tiling::RankPlan& plan,
                                        const tiling::RankUnit& unit, int rank, const StagedRows& queries,
                                        const StagedRows& keys, std::span<const RowTensor> tensors);

}  // namespace fa::ops

#endif  // FA_RANKS_ROWS_UNIT_MESSAGES_H_
