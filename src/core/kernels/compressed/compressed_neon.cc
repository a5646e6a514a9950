#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_NEON

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// These kernels use the functions of the vec_*.h files above.
#include "core/kernels/compressed/compressed_level.inc"

}  // namespace

void SetCompressed(KernelSet& set) noexcept { SetCompressedFloats(set); }

}  // namespace fa::core::kernels::neon
