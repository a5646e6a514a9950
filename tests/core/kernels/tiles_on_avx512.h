#ifndef FA_TESTS_CORE_KERNELS_TILES_ON_AVX512_H_
#define FA_TESTS_CORE_KERNELS_TILES_ON_AVX512_H_

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// Returns the kernels of avx512_amx with the vectors of that level and an emulated tile unit, or null for a CPU
/// without AVX512-BF16. The level amx_emulated has the vectors of the portable level.
[[nodiscard]] const KernelTable* TilesOnAvx512();

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_TILES_ON_AVX512_H_
