#include "core/kernels/indexer_kernel_level.h"

namespace fa::core::kernels {

const IndexerKernels& IndexerKernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (Includes(isa, Isa::kAvx512)) return avx512::Indexer();
  if (Includes(isa, Isa::kAvx2)) return avx2::Indexer();
#elif defined(__aarch64__)
  if (Includes(isa, Isa::kNeon)) return neon::Indexer();
#else
  (void)isa;
#endif
  return portable::Indexer();
}

}  // namespace fa::core::kernels
