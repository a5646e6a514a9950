#include <arm_neon.h>

#include "core/kernels/indexer/indexer_kernel_level.h"

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The exponential stands on the vocabulary above.
#include "core/kernels/exp2.inc"
// So does the selection.
#include "core/kernels/indexer/select_scores.inc"
// The kernels stand on all.
#include "core/kernels/indexer/indexer_kernels.inc"

}  // namespace

const IndexerKernels& Indexer() noexcept {
  static constexpr IndexerKernels kKernels = IndexerTable("indexer_neon", Isa::kNeon);
  return kKernels;
}

}  // namespace fa::core::kernels::neon
