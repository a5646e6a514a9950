// The kernels of avx512_amx for any CPU, in builds with tests. They use the vectors of the portable level and an
// emulated tile unit. Their products have the source text of avx512_amx, and their strips and tiles have its sizes.

#include "core/kernels/levels/kernel_level.h"

#define FA_FACTORS "core/kernels/factors_broadcast.inc"
#define FA_KERNELS_OF_AMX_EMULATED

namespace fa::core::kernels::amx_emulated {
namespace {

#include "core/kernels/vec/vec_amx_emulated.h"
#include "core/kernels/vec/vec_cut_emulated.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/levels/tile_level.inc"
#include "core/kernels/strip_kernels.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept {
  // The portable level has no strips of these widths, so they are made here. Their register blocks have one key,
  // because the compiler would take minutes for larger blocks of so many vectors of four lanes.
  static_cast<StripFunctions&>(set.strips[0]) = Strip<1, 8>::kFunctions;
  static_cast<StripFunctions&>(set.strips[1]) = Strip<1, 4>::kFunctions;
  SetTileFunctions(set);
}

}  // namespace fa::core::kernels::amx_emulated
