#include "ops/inference/int8_panels.h"

#include <algorithm>

#include "core/saturating.h"
#include "ops/tile/key_rows.h"

namespace fa::ops {

Int8Panels::Int8Panels(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                       const core::kernels::Int8Table& kernels, const Source& source, std::byte* slots)
    : problem_(problem),
      plan_(plan),
      kernels_(kernels),
      source_(source),
      slots_(slots),
      slot_bytes_(SlotBytes(problem, plan, kernels)) {}

size_t Int8Panels::SlotBytes(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                             const core::kernels::Int8Table& kernels) {
  using core::SaturatedProduct;
  const int64_t k = SaturatedProduct(plan.slot_rows, kernels.Words(problem.d) + 1);
  const int64_t v = SaturatedProduct(kernels.PanelBlocks(problem.dv), BlockWords(plan.slot_rows, kernels));
  const int64_t bytes = SaturatedProduct(core::SaturatedSum(k, v), static_cast<int64_t>(sizeof(uint32_t)));
  return static_cast<size_t>(core::SaturatedSum(bytes, 63) / 64 * 64);
}

void Int8Panels::Pack(const tiling::PackItem& item) const {
  const tiling::Sequence& sequence = problem_.sequences[static_cast<size_t>(item.sequence)];
  const int64_t first = sequence.k_offset + item.row_begin;
  // The last rows to pack may lie past the sequence: they only fill up its last group.
  const int64_t keys = std::min(item.row_end, sequence.sk) - item.row_begin;
  kernels_.pack_keys(BlockAt(source_.k, item.sequence, item.head_kv, first), keys, problem_.d, source_.sign,
                     SlotK(item.slot) + item.row_begin * words(), SlotStart(item.slot) + item.row_begin);
  kernels_.pack_values(BlockAt(source_.v, item.sequence, item.head_kv, first), keys, problem_.dv, v_stride(),
                       SlotV(item.slot) + item.row_begin / kernels_.group * kernels_.columns);
}

}  // namespace fa::ops
