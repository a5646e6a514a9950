#ifndef FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
#define FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// Returns the kernels of bf16 pairs over emulated instructions, which any CPU executes. Their source is the source of
/// the avx512_bf16 level, with strips of 4 lanes. VDPBF16PS is computed element by element and gives the same bits as
/// the instruction.
[[nodiscard]] const KernelTable& EmulatedPairs();

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
