#include "ops/sparse/sparse_backward_buffers.h"

#include "core/integer.h"
#include "core/saturating.h"
#include "ops/sparse/sparse_kernels.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

using core::RoundUp;

/// The number of floats in a cache line. Each row of sums begins at a new cache line.
constexpr int64_t kLineFloats = 16;

/// Returns how many floats a row takes in a panel that pack_rows writes.
int64_t PanelColumns(const core::kernels::KernelTable& table, int64_t columns) {
  return columns == 0 ? 0 : table.rows->PanelColumns(columns);
}

int64_t SumColumns(const BoundSparseGrad& bound) {
  if (!bound.has_gradients) return kLineFloats;  // without gradients there are no sums
  const tiling::SparseProblem sparse = bound.forward.Problem();
  const auto& problem = sparse.attention;
  const int64_t columns =
      sparse.has_v ? SparseBackwardBuffers::DvColumn(sparse) + problem.dv : problem.d + problem.d_rope;
  return RoundUp(columns, kLineFloats);
}

}  // namespace

int64_t SparseBackwardBuffers::DvColumn(const tiling::SparseProblem& sparse) {
  const auto& problem = sparse.attention;
  return sparse.has_v ? RoundUp(problem.d + problem.d_rope, kLineFloats) : 0;
}

SparseBackwardScratch::SparseBackwardScratch(Carver& carver, const tiling::SparseProblem& sparse,
                                             const TokenLists& lists, const tiling::SparsePlan& plan,
                                             const core::kernels::KernelTable& table, const GatherShape& gather,
                                             bool has_means)
    : selection(carver, sparse, lists),
      panels(carver, gather),
      addresses(carver, gather, gather.block == 0 ? TokenKeys::MostKeys(sparse, lists) : 0),
      tiles(carver, table.pairs(), MostLanes(plan.tile_heads), plan.block_k) {
  const auto& problem = sparse.attention;
  const int64_t lanes = MostLanes(plan.tile_heads), rows = RoundUp(plan.tile_heads, 2);
  const int64_t columns = problem.d + problem.d_rope;
  q_panel = carver.Floats(lanes, columns);
  do_panel = carver.Floats(lanes, problem.dv);
  dq = carver.Floats(lanes, columns);
  shift = carver.Floats(lanes);
  delta = carver.Floats(lanes);
  q = carver.Floats(rows, PanelColumns(table, problem.d));
  q_rope = carver.Floats(rows, PanelColumns(table, problem.d_rope));
  d_out = carver.Floats(rows, PanelColumns(table, problem.dv));
  dk_rows = carver.Array<float*>(plan.block_k);
  dk_rope_rows = carver.Array<float*>(plan.block_k);
  dv_rows = carver.Array<float*>(plan.block_k);
  runs = {carver.Array<FetchRuns::Run>(5, plan.block_k), static_cast<size_t>(5 * plan.block_k)};
  sums = carver.Floats(has_means ? TokenKeys::MostKeys(sparse, lists) : 0);
}

SparseBackwardBuffers::SparseBackwardBuffers(const BoundSparseGrad& bound, const tiling::SparsePlan& plan,
                                             const core::kernels::KernelTable& table, int workers,
                                             tiling::WorkspacePlan& workspace)
    : dv_column(DvColumn(bound.forward.Problem())),
      sums(bound.forward.sequences, SumColumns(bound), bound.forward.sequences.tokens, workers, workspace) {
  const BoundSparse& forward = bound.forward;
  const auto& problem = forward.attention.problem;
  in_place = HeadsInPlace(table, problem.heads);
  gather = {.dtype = problem.dtype,
            .form = KeyFormOf(table.widest(), problem.dtype),
            .d = problem.d,
            .d_rope = problem.d_rope,
            .dv = problem.dv,
            .shared_v = !forward.has_v,
            .natural_v = true,
            .pair_k = bound.has_gradients,
            .block = in_place != nullptr ? 0 : plan.block_k,
            .values_ahead = GatheredKeys::ValuesAhead(!forward.has_v)};
  Carver carver(nullptr);
  has_gradients = bound.has_gradients;
  has_means = bound.has_means();
  const tiling::SparseProblem sparse = forward.Problem();
  static_cast<void>(SparseBackwardScratch(carver, sparse, forward.Lists(), plan, table, gather, has_means));
  scratch_bytes = carver.used();
  scratch = workspace.Book("selected keys, their rows, tile scratch", scratch_bytes, workers);
  if (bound.has_dsink) {
    const int64_t token_bytes = core::SaturatedProduct(int64_t{sizeof(float)}, problem.heads);
    row_delta = workspace.Book("delta of every row", static_cast<size_t>(token_bytes), forward.sequences.tokens);
  }
}

}  // namespace fa::ops
