#ifndef FA_OPS_SPARSE_FORWARD_TILE_H_
#define FA_OPS_SPARSE_FORWARD_TILE_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/plan/carver.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/tile/forward_strips.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/token_keys.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/sparse/sparse_problem.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// Layout of a sparse forward's buffers in the workspace.
struct SparseForwardBuffers {
  SparseForwardBuffers(const BoundSparse& bound, const tiling::SparsePlan& plan,
                       const core::kernels::KernelTable& table, tiling::WorkspacePlan& workspace);

  const core::kernels::StripKernels* few;  ///< the kernels for tokens with few heads; null if tokens have more heads
  GatherShape gather;                      ///< how keys are gathered; `block` is 0 if the kernels read keys in place
  size_t run_state, scratch;
  size_t scratch_bytes;  ///< bytes of scratch per worker
};

/// Runs any task of a sparse forward's plan. A run makes one object, which all workers share.
class SparseForwardTile {
 public:
  /// All arguments must outlive the object.
  SparseForwardTile(const tiling::SparseProblem& sparse, const tiling::SparsePlan& plan,
                    const core::kernels::KernelTable& table, const SparseRows& rows,
                    const SparseForwardBuffers& buffers, std::byte* workspace);

  void operator()(int32_t task, int worker);

 private:
  friend struct SparseForwardBuffers;
  struct Scratch;
  struct Heads;

  void RunToken(const SparseToken& token, int64_t head_begin, int64_t head_end, const Scratch& scratch) const;
  void VisitKeys(const Heads& heads, const SelectedKeys& keys, const Scratch& scratch,
                 ForwardStrips::Strips& strips) const;
  void VisitBlock(tiling::Interval block, const KeyRows& rows, const Scratch& scratch,
                  ForwardStrips::Strips& strips) const;
  void AddProbabilities(const ForwardStrips::Strips& strips, const SelectedKeys& keys, const Scratch& scratch) const;
  void WriteMean(const SparseToken& token, const SelectedKeys& keys, const Scratch& scratch) const;

  const tiling::SparseProblem& sparse_;
  const tiling::SparsePlan& plan_;
  const core::kernels::KernelTable& table_;
  const SparseRows& rows_;
  const SparseForwardBuffers& buffers_;
  std::byte* workspace_;
  ForwardStrips strips_;
  GatheredKeys gathered_;
};

/// Writes 0 to the rows that no sequence uses, in every result.
void WriteUnusedSparseRows(const tiling::SparseProblem& sparse, const SparseRows& rows);

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_FORWARD_TILE_H_
