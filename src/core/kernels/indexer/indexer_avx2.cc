#include "core/kernels/indexer/indexer_kernel_level.h"

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec/vec_avx2.h"
// The exponential stands on the vocabulary above.
#include "core/kernels/exp2.inc"
// So does the selection.
#include "core/kernels/indexer/select_scores.inc"
// The kernels stand on all.
#include "core/kernels/indexer/indexer_kernels.inc"

}  // namespace

const IndexerKernels& Indexer() noexcept {
  static constexpr IndexerKernels kKernels = IndexerTable("indexer_avx2", Isa::kAvx2);
  return kKernels;
}

}  // namespace fa::core::kernels::avx2
