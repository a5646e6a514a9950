#include "core/kernels/described_kernels.h"
#include "core/kernels/indexer/indexer_kernel_level.h"

namespace fa::core::kernels {

const IndexerKernels& IndexerKernelsFor(Isa isa) {
  if (!Includes(DetectIsa(), isa)) return DescribedIndexerKernels(isa);
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512)) return avx512::Indexer();
  if (Includes(isa, Isa::kAvx2)) return avx2::Indexer();
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeon)) return neon::Indexer();
#endif
  return portable::Indexer();
}

}  // namespace fa::core::kernels
