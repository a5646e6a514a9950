#include "ops/inference/int8_panels.h"

#include <algorithm>

#include "core/saturating.h"

namespace fa::ops {

Int8Panels::Int8Panels(const BoundAttention& bound, const tiling::ForwardPlan& plan,
                       const core::kernels::Int8Table& kernels, const AttentionArgs& args, int sign, std::byte* slots)
    : bound_(bound),
      plan_(plan),
      kernels_(kernels),
      args_(args),
      sign_(sign),
      slots_(slots),
      slot_bytes_(SlotBytes(bound.problem, plan, kernels)) {}

size_t Int8Panels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                             const core::kernels::Int8Table& kernels) {
  using core::SaturatedProduct;
  const int64_t k = SaturatedProduct(plan.slot_rows, kernels.Words(problem.d) + 1);
  const int64_t v = SaturatedProduct(kernels.PanelBlocks(problem.dv), plan.slot_rows / kernels.group, kernels.columns);
  const int64_t bytes = SaturatedProduct(core::SaturatedSum(k, v), static_cast<int64_t>(sizeof(uint32_t)));
  return static_cast<size_t>(core::SaturatedSum(bytes, 63) / 64 * 64);
}

void Int8Panels::Pack(const tiling::PackItem& item) const {
  const auto& problem = bound_.problem;
  const int64_t first = problem.sequences[static_cast<size_t>(item.sequence)].k_offset + item.row_begin;
  // The last rows to pack may lie past the sequence: they only fill up its last group.
  const int64_t keys =
      std::min(item.row_end, problem.sequences[static_cast<size_t>(item.sequence)].sk) - item.row_begin;
  const auto rows_of = [&](const TensorView& tensor, const layout::Rows& rows) -> core::kernels::RowBlock {
    return {static_cast<const int8_t*>(tensor.data) + rows.Offset(item.sequence, item.head_kv, first), DType::kI8,
            rows.row};
  };
  kernels_.pack_keys(rows_of(args_.k, bound_.k), keys, problem.d, sign_, SlotK(item.slot) + item.row_begin * words(),
                     SlotStart(item.slot) + item.row_begin);
  kernels_.pack_values(rows_of(args_.v, bound_.v), keys, problem.dv, v_stride(),
                       SlotV(item.slot) + item.row_begin / kernels_.group * kernels_.columns);
}

}  // namespace fa::ops
