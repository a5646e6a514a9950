#ifndef FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
#define FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// Returns kernels of bf16 pairs that any CPU executes, because they compute VDPBF16PS element by element. They have
/// the source of the avx512_bf16 level and give the bits of the instruction. They compute 4 rows at once, one per lane.
[[nodiscard]] const KernelTable& EmulatedPairs();

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
