#ifndef FA_OPS_SPARSE_BACKWARD_TILE_H_
#define FA_OPS_SPARSE_BACKWARD_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/sparse/sparse_backward_buffers.h"
#include "ops/tile/score_tile.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_sum_tasks.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/sparse/sparse_problem.h"

namespace fa::ops {

/// Runs any task of a sparse backward's plan. A run makes one object, which all workers share.
class SparseBackwardTile {
 public:
  /// All arguments must outlive the object.
  SparseBackwardTile(const tiling::SparseProblem& sparse, const tiling::SparsePlan& plan,
                     const core::kernels::KernelTable& table, const SparseGradRows& rows,
                     const SparseBackwardBuffers& buffers, std::byte* workspace);

  void operator()(int32_t task, int worker);

 private:
  struct TokenStrip;
  struct Tile;

  void RunToken(const SparseToken& token, const SparseBackwardScratch& scratch) const;
  void WriteEmpty(const SparseToken& token) const;
  void WriteMeans(const SparseToken& token, const SelectedKeys& keys, const SparseBackwardScratch& scratch) const;
  void Open(Tile& tile) const;
  void Accumulate(Tile& tile, int64_t begin) const;
  void StripGradients(Tile& tile, TokenStrip& strip, const KeyRows& rows, tiling::Interval keys) const;
  void QueryGradients(const TokenStrip& strip, const KeyRows& rows, tiling::Interval keys, const float* ds,
                      const float* alpha) const;
  void KeyGradients(const Tile& tile, std::span<const int32_t> block) const;
  void WriteQueries(const Tile& tile) const;
  void AimAt(const Tile& tile, std::span<const int32_t> block) const;
  /// Returns the Delta of each head of a query token, one after the other.
  [[nodiscard]] float* RowDelta(const SparseToken& token) const;

  const tiling::SparseProblem& sparse_;
  const tiling::SparsePlan& plan_;
  const core::kernels::KernelTable& table_;
  const SparseGradRows& call_;
  const GradRows& rows_;
  const SparseBackwardBuffers& buffers_;
  std::byte* workspace_;
  ScoreTile score_tile_;
  GatheredKeys gathered_;
  KeySumTasks::Run sums_;
};

/// Computes dsink from the deltas that the tiles have left. For each head, tokens are added one by one in ascending
/// order, in f64. Must be called after the graph has run.
void WriteSinkGradient(const tiling::SparseProblem& sparse, const SparseGradRows& rows,
                       const SparseBackwardBuffers& buffers, const std::byte* workspace);

/// Writes 0 to the rows that no sequence uses, in every gradient.
void WriteUnusedGradients(const tiling::SparseProblem& sparse, const SparseGradRows& rows);

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_BACKWARD_TILE_H_
