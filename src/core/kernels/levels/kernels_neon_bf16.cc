#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_NEON_BF16

namespace fa::core::kernels::neon_bf16 {
namespace {

#include "core/kernels/vec/vec_neon_bf16_matrix.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/levels/pair_block_level.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept { SetBlockFunctions(set); }

}  // namespace fa::core::kernels::neon_bf16
