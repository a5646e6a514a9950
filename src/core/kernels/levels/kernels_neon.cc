#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_FACTORS "core/kernels/factors_by_lane.inc"
#define FA_KERNELS_OF_NEON

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/levels/f32_level.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept { SetF32Functions(set); }

}  // namespace fa::core::kernels::neon
