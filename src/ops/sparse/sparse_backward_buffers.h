#ifndef FA_OPS_SPARSE_BACKWARD_BUFFERS_H_
#define FA_OPS_SPARSE_BACKWARD_BUFFERS_H_

#include <cstddef>
#include <cstdint>

#include "core/kernels/kernel_types.h"
#include "ops/plan/carver.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/tile/grad_strip.h"
#include "ops/token/gathered_keys.h"
#include "ops/token/key_sum_tasks.h"
#include "ops/token/token_keys.h"
#include "tiling/sparse/sparse_plan.h"
#include "tiling/sparse/sparse_problem.h"
#include "tiling/workspace_plan.h"

namespace fa::ops {

/// One worker's memory in a sparse backward.
struct SparseBackwardScratch {
  SparseBackwardScratch(Carver& carver, const tiling::SparseProblem& sparse, const TokenLists& lists,
                        const tiling::SparsePlan& plan, const core::kernels::KernelTable& table,
                        const GatherShape& gather, bool has_means);

  TokenKeys selection;
  GatherPanels panels;
  KeyAddresses addresses;
  GradTiles tiles;
  float *q_panel, *do_panel, *dq;              ///< strip after strip, [columns][width]; dq has the form of GradStrip
  float *shift, *delta;                        ///< for each lane: RowShift of its statistics, and rowsum(dO * O)
  float *q, *q_rope, *d_out;                   ///< Q, its rope part and dO as pack_rows writes them
  float **dk_rows, **dk_rope_rows, **dv_rows;  ///< addresses of the sums of the block's keys
  /// Memory for a list of cache lines to prefetch: lines of the keys' sums and, if rows are gathered, of the next
  /// block's rows.
  std::span<FetchRuns::Run> runs;
  float* sums;  ///< for each key: the sum of the probabilities of all heads; only if means are wanted
};

/// Layout of a sparse backward's buffers in the workspace.
struct SparseBackwardBuffers {
  SparseBackwardBuffers(const BoundSparseGrad& bound, const tiling::SparsePlan& plan,
                        const core::kernels::KernelTable& table, int workers, tiling::WorkspacePlan& workspace);

  /// Returns the column at which dV begins in a key's sums, after dK and its rope part. The column is 0 if dV is added
  /// to dK.
  [[nodiscard]] static int64_t DvColumn(const tiling::SparseProblem& sparse);

  int64_t dv_column;
  KeySumTasks sums;
  const core::kernels::StripKernels* in_place;  ///< the kernels for tokens with few heads, or null
  GatherShape gather;             ///< how keys are gathered; `block` is 0 if `in_place` reads them in place
  bool has_gradients = true;      ///< as BoundSparseGrad::has_gradients
  bool has_means = false;         ///< whether the call wants means of the probabilities over the heads
  size_t scratch, scratch_bytes;  ///< offset of all scratch, and bytes of scratch per worker
  size_t row_delta = 0;           ///< f32 [tokens][heads]: Delta of every row, for dsink; 0 for a row without keys
};

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_BACKWARD_BUFFERS_H_
