#include "core/kernels/indexer/indexer_kernel_level.h"

namespace fa::core::kernels::avx512 {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The exponential stands on the vocabulary above.
#include "core/kernels/exp2.inc"
// So does the selection.
#include "core/kernels/indexer/select_scores_avx512.inc"
// The kernels stand on all.
#include "core/kernels/indexer/indexer_kernels.inc"

}  // namespace

const IndexerKernels& Indexer() noexcept {
  static constexpr IndexerKernels kKernels = IndexerTable("indexer_avx512", Isa::kAvx512);
  return kKernels;
}

}  // namespace fa::core::kernels::avx512
