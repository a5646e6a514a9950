#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kNeon
#define FA_FACTORS "core/kernels/factors_by_lane.inc"
#define FA_STRIP_KERNELS_NEON

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The kernels stand on the vocabulary above.
#include "core/kernels/levels/f32_level.inc"

}  // namespace

const KernelTable& Table() noexcept { return kTable; }

}  // namespace fa::core::kernels::neon
