#include "ops/dense/backward_buffers.h"

#include "core/executor.h"
#include "ops/tile/strip.h"

namespace fa::ops {
namespace {

bool DenseF32(const layout::Rows& rows, int64_t columns) { return rows.dtype == DType::kF32 && rows.row == columns; }

}  // namespace

BackwardBuffers::BackwardBuffers(const BoundAttentionGrad& bound, const tiling::BackwardPlan& plan,
                                 const core::kernels::KernelTable& table, tiling::WorkspacePlan& workspace)
    : columns_q_(bound.forward.problem.d),
      columns_rope_(bound.forward.problem.d_rope),
      columns_qk_(bound.forward.problem.d + bound.forward.problem.d_rope),
      columns_v_(bound.forward.problem.dv),
      slot_rows_(plan.slot_rows),
      slot_keys_(plan.slot_keys),
      tile_floats_((plan.block_q + kMaxStripWidth - 1) / kMaxStripWidth * kMaxStripWidth * plan.block_k),
      strip_floats_(kMaxStripWidth * plan.block_k),
      pairs_(table.pairs()),
      copies_k_(pairs_ || bound.forward.has_rope || !DenseF32(bound.forward.k, bound.forward.problem.d)),
      copies_v_(!pairs_ && !DenseF32(bound.forward.v, columns_v_)),
      softcap_(bound.forward.softcap > 0),
      stage_bias_(bound.forward.pse.compressed) {
  Carver slot(nullptr);
  static_cast<void>(LaySlot(slot));
  slot_bytes_ = slot.used();
  Carver scratch(nullptr);
  static_cast<void>(LayScratch(scratch));
  scratch_bytes_ = scratch.used();
  run_state_ = workspace.Book("run state", core::RunStateBytes(plan.graph));
  slots_ = workspace.Book("panels, dQ, dK, dV of the heads in flight", slot_bytes_ * static_cast<size_t>(plan.slots));
  scratch_ = workspace.Book("tile scratch", scratch_bytes_ * static_cast<size_t>(plan.graph.workers()));

  int64_t rows = 0, keys = 0;
  const auto& problem = bound.forward.problem;
  for (const tiling::Sequence& sequence : problem.sequences) {
    row_base_.push_back(rows);
    key_base_.push_back(keys);
    rows += problem.heads * sequence.sq;
    keys += problem.heads * sequence.sk;
  }
  const auto floats = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  if (bound.has_dsink) row_delta_ = workspace.Book("delta of every row", floats(rows));
  if (bound.has_dslopes) row_slope_ = workspace.Book("slope gradient of every row", floats(rows));
  if (!bound.has_dpse) return;
  if (bound.dpse.shared_rows) {
    key_bias_ = workspace.Book("bias gradient of every key", floats(keys));
  } else if (bound.dpse.shared_batch && !problem.sequences.empty()) {
    const tiling::Sequence& first = problem.sequences.front();
    pair_bias_ = workspace.Book("bias gradient summed over the batch", floats(problem.heads * first.sq * first.sk));
  }
}

BackwardSlot BackwardBuffers::LaySlot(Carver& carver) const {
  return {.q_panel = carver.Floats(slot_rows_ * columns_qk_),
          .do_panel = carver.Floats(slot_rows_ * columns_v_),
          .dq_panel = carver.Floats(slot_rows_ * columns_qk_),
          .shift = carver.Floats(slot_rows_),
          .delta = carver.Floats(slot_rows_),
          .q = carver.Floats(slot_rows_ * PanelColumns(columns_q_)),
          .q_rope = carver.Floats(slot_rows_ * PanelColumns(columns_rope_)),
          .d_out = carver.Floats(slot_rows_ * PanelColumns(columns_v_)),
          .dk = carver.Floats(slot_keys_ * columns_qk_),
          .dv = carver.Floats(slot_keys_ * columns_v_),
          .k = carver.Floats(copies_k_ ? KeyOffset(slot_keys_ + slot_keys_ % 2) : 0),
          .v = carver.Floats(copies_v_ ? slot_keys_ * columns_v_ : 0)};
}

BackwardScratch BackwardBuffers::LayScratch(Carver& carver) const {
  return {.s = carver.Floats(tile_floats_),
          .dp = carver.Floats(tile_floats_),
          .capped = carver.Floats(softcap_ ? strip_floats_ : 0),
          .bias = carver.Floats(stage_bias_ ? strip_floats_ : 0),
          .pairs = carver.Floats(pairs_ ? strip_floats_ / 2 : 0)};
}

BackwardSlot BackwardBuffers::Slot(std::byte* workspace, int32_t slot) const {
  Carver carver(workspace + slots_ + static_cast<size_t>(slot) * slot_bytes_);
  return LaySlot(carver);
}

BackwardScratch BackwardBuffers::Scratch(std::byte* workspace, int worker) const {
  Carver carver(workspace + scratch_ + static_cast<size_t>(worker) * scratch_bytes_);
  return LayScratch(carver);
}

}  // namespace fa::ops
