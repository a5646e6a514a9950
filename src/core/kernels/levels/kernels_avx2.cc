#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx2
#define FA_FACTORS "core/kernels/factors_broadcast.inc"
#define FA_STRIP_KERNELS_AVX2
#define FA_FEW_ROWS_ATTEND

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec/vec_avx2.h"
// The kernels stand on the vocabulary above.
#include "core/kernels/levels/f32_level.inc"

}  // namespace

const KernelTable& Table() noexcept { return kTable; }

}  // namespace fa::core::kernels::avx2
