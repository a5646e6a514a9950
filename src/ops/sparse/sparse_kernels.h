#ifndef FA_OPS_SPARSE_KERNELS_H_
#define FA_OPS_SPARSE_KERNELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/kernels/kernel_types.h"
#include "ops/sparse/bind_sparse.h"
#include "tiling/sparse/sparse_plan.h"

namespace fa::ops {

/// Returns the kernels that take all heads of a query token at once, or null if there are too many heads. Kernels of
/// few rows are preferred, then the strip of bf16 pairs for few heads (HeadsInPlace). Both read keys in place.
/// Otherwise the result is the narrowest strip, with its state by rows.
[[nodiscard]] const core::kernels::StripKernels* FewHeads(const core::kernels::KernelTable& table, int64_t heads);
/// Returns the strip of pairs for few heads, or null if there are more heads or the level has no such strip.
[[nodiscard]] const core::kernels::StripKernels* HeadsInPlace(const core::kernels::KernelTable& table, int64_t heads);
/// Returns whether the forward reads keys in place. Quantised keys are widened instead.
[[nodiscard]] bool ReadsKeysInPlace(const BoundSparse& bound, const core::kernels::KernelTable& table);

/// Returns the names of the strips' kernels, in order of use.
[[nodiscard]] std::vector<std::string> SparseKernelNames(const core::kernels::KernelTable& table,
                                                         const tiling::SparsePlan& plan, int64_t heads, bool forward);

}  // namespace fa::ops

#endif  // FA_OPS_SPARSE_KERNELS_H_
