#ifndef FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
#define FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_

#include "core/kernels/kernel_types.h"

namespace fa::core::kernels {

/// The kernels of bf16 pairs over a vocabulary that any CPU executes. It is the text of the avx512_bf16 level with 4
/// lanes, and VDPBF16PS is computed element by element. The bits equal those of VDPBF16PS; only the strips are
/// narrower.
[[nodiscard]] const KernelTable& EmulatedPairs();

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_EMULATED_PAIRS_H_
