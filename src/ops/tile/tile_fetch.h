#ifndef FA_OPS_TILE_FETCH_H_
#define FA_OPS_TILE_FETCH_H_

#include <cstddef>
#include <cstdint>

#include "layout/rows_view.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention_grad.h"
#include "ops/tile/fetch_runs.h"
#include "tiling/backward/backward_plan.h"
#include "tiling/backward/backward_shape.h"
#include "tiling/forward/forward_plan.h"
#include "tiling/tile_shape.h"

namespace fa::ops {

/// Rows that a tile prefetches during its products. Each row is too short for the hardware's prefetchers.
class TileFetch {
 public:
  TileFetch() : runs_({reinterpret_cast<FetchRuns::Run*>(memory_), kMaxRuns}) {}
  TileFetch(const TileFetch&) = delete;
  TileFetch& operator=(const TileFetch&) = delete;

  /// Forward, short sequence: lists the rows of O that this tile is about to write, and the rows of Q, K and V that the
  /// next tile reads.
  /// @param block_k  the largest number of keys
  /// @param next     the tile after `item`, or null
  void List(const tiling::AttentionProblem& problem, const ForwardRows& rows, int64_t block_k,
            const tiling::ForwardItem& item, const tiling::ForwardItem* next);
  /// Backward: lists the rows of Q, its rope part, dO and O that the tile `next` packs. Unless `item` reads the same
  /// keys, also lists the tile's rows of K, its rope part and V. If all these lines take more than `most_bytes`, lists
  /// nothing.
  void List(const tiling::AttentionProblem& problem, const GradRows& rows, const tiling::BackwardItem& item,
            const tiling::BackwardItem& next, int64_t most_bytes);

  [[nodiscard]] int64_t lines() const { return runs_.lines(); }
  [[nodiscard]] core::kernels::FetchList list() const { return runs_.list(); }

  /// The most runs of the list: one per row, in case no row is adjacent to another. The largest tile of the backward
  /// reads four tensors of queries and three of keys. The largest tile of the forward lists O, Q, K and V. Further runs
  /// are left out.
  static constexpr int64_t kMaxRuns = 4 * tiling::kMaxBlockQ + 3 * tiling::kMaxColumnKeys;
  static_assert(kMaxRuns >= 2 * tiling::kMaxBlockQ + 2 * tiling::kMaxBlockK);

 private:
  void Add(const layout::RowsView& tensor, int64_t columns, int64_t batch, int64_t head, int64_t heads,
           tiling::Interval range);

  // The memory of the list stays uninitialised.
  alignas(FetchRuns::Run) std::byte memory_[kMaxRuns * sizeof(FetchRuns::Run)];
  FetchRuns runs_;
};

}  // namespace fa::ops

#endif  // FA_OPS_TILE_FETCH_H_
