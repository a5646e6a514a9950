#include "ops/sparse/sparse_kernels.h"

#include <algorithm>

namespace fa::ops {

const core::kernels::StripKernels* FewHeads(const core::kernels::KernelTable& table, int64_t heads) {
  if (const core::kernels::StripKernels* few = table.ForFewRows(heads); few != nullptr) return few;
  if (const core::kernels::StripKernels* in_place = HeadsInPlace(table, heads); in_place != nullptr) return in_place;
  if (table.row_state == nullptr || heads > table.narrowest().width) return nullptr;
  return &table.WithRowState(table.narrowest());
}

const core::kernels::StripKernels* HeadsInPlace(const core::kernels::KernelTable& table, int64_t heads) {
  return table.heads_in_place != nullptr && heads <= table.heads_in_place->width ? table.heads_in_place : nullptr;
}

bool ReadsKeysInPlace(const BoundSparse& bound, const core::kernels::KernelTable& table) {
  if (bound.quantized) return false;
  const core::kernels::StripKernels* few = FewHeads(table, bound.attention.problem.heads);
  return few != nullptr && (few->any_dtype || few->in_place);
}

std::vector<std::string> SparseKernelNames(const core::kernels::KernelTable& table, const tiling::SparsePlan& plan,
                                           int64_t heads, bool forward) {
  const core::kernels::StripKernels* few = forward ? FewHeads(table, heads) : HeadsInPlace(table, heads);
  if (few != nullptr) return {few->name};
  std::vector<std::string> names;
  for (int64_t left = std::min(plan.tile_heads, plan.heads_per_task); left > 0;) {
    const core::kernels::StripKernels& strip = table.ForRows(left);
    if (std::find(names.begin(), names.end(), strip.name) == names.end()) names.emplace_back(strip.name);
    left -= strip.rows;
  }
  return names;
}

}  // namespace fa::ops
