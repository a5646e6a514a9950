#include "core/kernels/levels/kernel_level.h"

#define FA_FACTORS "core/kernels/factors_broadcast.inc"
#define FA_KERNELS_OF_AVX2

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec/vec_avx2.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/few_row_floats.inc"
#include "core/kernels/levels/f32_level.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept {
  SetF32Functions(set);
  SetAttendingFloats(set);
}

}  // namespace fa::core::kernels::avx2
