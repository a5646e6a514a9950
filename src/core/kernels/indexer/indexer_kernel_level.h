#ifndef FA_CORE_KERNELS_INDEXER_KERNEL_LEVEL_H_
#define FA_CORE_KERNELS_INDEXER_KERNEL_LEVEL_H_

/// Includes that every level's indexer source needs around the shared text.

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/levels/kernel_level.h"

namespace fa::core::kernels {
namespace portable {
const IndexerKernels& Indexer() noexcept;
}
namespace avx2 {
const IndexerKernels& Indexer() noexcept;
}
namespace avx512 {
const IndexerKernels& Indexer() noexcept;
}
namespace neon {
const IndexerKernels& Indexer() noexcept;
}
}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_INDEXER_KERNEL_LEVEL_H_
