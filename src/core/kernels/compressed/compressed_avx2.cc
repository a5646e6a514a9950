#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX2

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec/vec_avx2.h"
// These kernels use the functions of the vec_*.h file above.
#include "core/kernels/compressed/compressed_level.inc"

}  // namespace

void SetCompressed(KernelSet& set) noexcept { SetCompressedFloats(set); }

}  // namespace fa::core::kernels::avx2
