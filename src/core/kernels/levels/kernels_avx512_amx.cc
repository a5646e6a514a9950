#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX512_AMX

namespace fa::core::kernels::avx512_amx {
namespace {

#include "core/kernels/vec/vec_amx.h"
#include "core/kernels/vec/vec_cut_avx512.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/levels/tile_level.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept { SetTileFunctions(set); }

}  // namespace fa::core::kernels::avx512_amx
