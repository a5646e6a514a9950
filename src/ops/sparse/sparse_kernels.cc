#include "ops/sparse/sparse_kernels.h"

#include <algorithm>

namespace fa::ops {

const core::kernels::StripKernels* FewHeads(const core::kernels::KernelTable& table, int64_t heads) {
  if (const core::kernels::StripKernels* few = table.ForFewRows(heads); few != nullptr) return few;
  if (table.row_state == nullptr || heads > table.narrowest().width) return nullptr;
  return &table.WithRowState(table.narrowest());
}

bool ReadsKeysInPlace(const core::kernels::KernelTable& table, int64_t heads) {
  const core::kernels::StripKernels* few = FewHeads(table, heads);
  return few != nullptr && few->any_dtype;
}

std::vector<std::string> SparseKernelNames(const core::kernels::KernelTable& table, const tiling::SparsePlan& plan,
                                           int64_t heads, bool few) {
  if (few && FewHeads(table, heads) != nullptr) return {FewHeads(table, heads)->name};
  std::vector<std::string> names;
  for (int64_t left = std::min(plan.tile_heads, plan.heads_per_task); left > 0;) {
    const core::kernels::StripKernels& strip = table.ForRows(left);
    if (std::find(names.begin(), names.end(), strip.name) == names.end()) names.emplace_back(strip.name);
    left -= strip.rows;
  }
  return names;
}

}  // namespace fa::ops
