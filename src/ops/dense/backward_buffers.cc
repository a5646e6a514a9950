#include "ops/dense/backward_buffers.h"

#include <algorithm>

#include "core/run/executor.h"
#include "core/saturating.h"
#include "ops/dense/gradient_tiles.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

using core::SaturatedProduct;
using core::SaturatedSum;

/// The sizes, in floats, of the sums to which tiles of several slots add. A size is 0 if the call does not need the
/// sum.
struct SumSizes {
  int64_t row_delta = 0, row_slope = 0, key_bias = 0, pair_bias = 0;
};

SumSizes SizesOfSums(const BoundAttentionGrad& bound) {
  const tiling::AttentionProblem& problem = bound.forward.problem;
  int64_t rows = 0, keys = 0;
  for (const tiling::Sequence& sequence : problem.sequences) {
    rows = SaturatedSum(rows, SaturatedProduct(problem.heads, sequence.sq));
    keys = SaturatedSum(keys, SaturatedProduct(problem.heads, sequence.sk));
  }
  SumSizes sums{.row_delta = bound.has_dsink ? rows : 0, .row_slope = bound.has_dslopes ? rows : 0};
  if (!bound.has_dpse || bound.dpse.sums) return sums;
  if (bound.dpse.shared_rows) {
    sums.key_bias = keys;
  } else {
    sums.pair_bias = PairBiasSizes(bound).count();
  }
  return sums;
}

/// Returns whether the loop `gradient_tiles` computes a strip of the plan. The loop computes the widest strips only.
bool Loops(const BoundAttentionGrad& bound, const tiling::BackwardPlan& plan, const core::kernels::KernelTable& table) {
  if (!GradientTiles::Takes(table, bound)) return false;
  const auto& sequences = bound.forward.problem.sequences;
  return std::any_of(sequences.begin(), sequences.end(), [&](const tiling::Sequence& sequence) {
    return table.ForRows(std::min(sequence.sq, plan.block_q)).width == table.widest().width;
  });
}

bool DenseF32(const layout::Rows& rows, int64_t columns) { return rows.dtype == DType::kF32 && rows.row == columns; }

}  // namespace

PairBiasSizes::PairBiasSizes(const BoundAttentionGrad& bound) {
  const std::vector<tiling::Sequence>& sequences = bound.forward.problem.sequences;
  const PseRows& dpse = bound.dpse;
  const bool shared = (dpse.shared_batch || dpse.shared_heads) && !dpse.shared_rows && !dpse.sums;
  if (!bound.has_dpse || !shared || sequences.empty()) return;
  batch = dpse.shared_batch ? 1 : std::ssize(sequences);
  heads = dpse.shared_heads ? 1 : bound.forward.problem.heads;
  rows = sequences.front().sq;
  keys = sequences.front().sk;
}

BackwardBuffers::BackwardBuffers(const BoundAttentionGrad& bound, const tiling::BackwardPlan& plan,
                                 const core::kernels::KernelTable& table, tiling::WorkspacePlan& workspace)
    : columns_q_(bound.forward.problem.d),
      columns_rope_(bound.forward.problem.d_rope),
      columns_qk_(bound.forward.problem.d + bound.forward.problem.d_rope),
      columns_v_(bound.forward.problem.dv),
      slot_count_(plan.slots),
      workers_(plan.graph.workers()),
      slot_rows_(plan.slot_rows),
      slot_keys_(plan.slot_keys),
      tile_lanes_(MostLanes(plan.block_q)),
      block_k_(plan.block_k),
      paired_keys_(table.rows->PairedRows(plan.slot_keys)),
      pairs_(table.pairs()),
      loops_(Loops(bound, plan, table)),
      copies_k_(pairs_ || bound.forward.has_rope || !DenseF32(bound.forward.k, bound.forward.problem.d)),
      copies_v_(!pairs_ && !DenseF32(bound.forward.v, columns_v_)),
      caps_(bound.forward.caps()),
      stage_bias_(bound.forward.pse.compressed),
      groups_sums_(pairs_ && table.rows->attends_tiles && columns_q_ % KeyColumns::kGroup == 0 &&
                   columns_rope_ % KeyColumns::kGroup == 0 && columns_v_ % KeyColumns::kGroup == 0),
      pair_bias_sizes_(bound) {
  Carver slot(nullptr);
  static_cast<void>(LaySlot(slot));
  slot_bytes_ = slot.used();
  Carver scratch(nullptr);
  static_cast<void>(LayScratch(scratch));
  scratch_bytes_ = scratch.used();
  run_state_ = workspace.Book("run state", core::RunStateBytes(plan.graph));
  slots_ = workspace.Book("panels, dQ, dK, dV of the heads in flight", slot_bytes_, plan.slots);
  scratch_ = workspace.Book("tile scratch", scratch_bytes_, plan.graph.workers());

  const auto& problem = bound.forward.problem;
  int64_t rows = 0, keys = 0;
  for (const tiling::Sequence& sequence : problem.sequences) {
    row_base_.push_back(rows);
    key_base_.push_back(keys);
    rows += problem.heads * sequence.sq;
    keys = SaturatedSum(keys, SaturatedProduct(problem.heads, sequence.sk));
  }
  const SumSizes sums = SizesOfSums(bound);
  const auto book = [&](const char* name, int64_t count) { return workspace.Book(name, sizeof(float), count); };
  if (bound.has_dsink) row_delta_ = book("delta of every row", sums.row_delta);
  if (bound.has_dslopes) row_slope_ = book("slope gradient of every row", sums.row_slope);
  if (sums.key_bias > 0) key_bias_ = book("bias gradient of every key", sums.key_bias);
  if (sums.pair_bias > 0) pair_bias_ = book("bias gradient summed over batch or heads", sums.pair_bias);
}

size_t BackwardBuffers::SumBytes(const BoundAttentionGrad& bound) {
  const SumSizes sums = SizesOfSums(bound);
  int64_t floats = 0;
  for (const int64_t count : {sums.row_delta, sums.row_slope, sums.key_bias, sums.pair_bias}) {
    floats = SaturatedSum(floats, count);
  }
  return static_cast<size_t>(SaturatedProduct(floats, static_cast<int64_t>(sizeof(float))));
}

BackwardSlot BackwardBuffers::LaySlot(Carver& carver) const {
  return {.q_panel = carver.Floats(slot_rows_, columns_qk_),
          .do_panel = carver.Floats(slot_rows_, columns_v_),
          .dq_panel = carver.Floats(slot_rows_, columns_qk_),
          .shift = carver.Floats(slot_rows_),
          .delta = carver.Floats(slot_rows_),
          .q = carver.Floats(slot_rows_, PanelColumns(columns_q_)),
          .q_rope = carver.Floats(slot_rows_, PanelColumns(columns_rope_)),
          .d_out = carver.Floats(slot_rows_, PanelColumns(columns_v_)),
          .dk = carver.Floats(slot_keys_, columns_qk_),
          .dv = carver.Floats(slot_keys_, columns_v_),
          .k = carver.Floats(copies_k_ ? KeyOffset(paired_keys_) : 0),
          .v = carver.Floats(copies_v_ ? slot_keys_ * columns_v_ : 0)};
}

BackwardScratch BackwardBuffers::LayScratch(Carver& carver) const {
  return {.tiles = GradTiles(carver, pairs_, tile_lanes_, block_k_),
          .capped = carver.Floats(caps_ ? kMaxStripWidth * block_k_ : 0),
          .bias = carver.Floats(stage_bias_ ? kMaxStripWidth * block_k_ : 0),
          .loop = carver.Array<char>(loops_ ? core::kernels::TileGradientArgs::kMemoryBytes : 0)};
}

BackwardSlot BackwardBuffers::Slot(std::byte* workspace, int32_t slot) const {
  assert(slot >= 0 && slot < slot_count_);
  Carver carver(workspace + slots_ + static_cast<size_t>(slot) * slot_bytes_);
  return LaySlot(carver);
}

BackwardScratch BackwardBuffers::Scratch(std::byte* workspace, int worker) const {
  assert(worker >= 0 && worker < workers_);
  Carver carver(workspace + scratch_ + static_cast<size_t>(worker) * scratch_bytes_);
  return LayScratch(carver);
}

}  // namespace fa::ops
