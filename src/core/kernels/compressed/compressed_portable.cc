#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_PORTABLE

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec/vec_portable.h"
// These kernels use the functions of the vec_*.h files above.
#include "core/kernels/compressed/compressed_level.inc"

}  // namespace

void SetCompressed(KernelSet& set) noexcept { SetCompressedFloats(set); }

}  // namespace fa::core::kernels::portable
