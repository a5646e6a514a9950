#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX512_BF16

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec/vec_avx512_bf16.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/levels/pair_level.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept { SetPairFunctions(set); }

void SetAttending(KernelSet& set) noexcept { SetAttendingFloats(set); }

}  // namespace fa::core::kernels::avx512_bf16
