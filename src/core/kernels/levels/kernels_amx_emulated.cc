// The kernels of avx512_amx over vocabularies that any CPU executes, for builds with tests. The vocabularies are the
// vectors of the portable level and an emulation of the tile unit. The products are compiled from the same source text,
// and strips and their tiles have the same sizes.

#include "core/kernels/levels/kernel_level.h"

#define FA_FACTORS "core/kernels/factors_broadcast.inc"
#define FA_KERNELS_OF_AMX_EMULATED

namespace fa::core::kernels::amx_emulated {
namespace {

#include "core/kernels/vec/vec_amx_emulated.h"
#include "core/kernels/vec/vec_pairs_emulated.h"
// These kernels are written in the vocabulary that is included above.
#include "core/kernels/levels/tile_level.inc"
#include "core/kernels/strip_kernels.inc"

}  // namespace

void SetFunctions(KernelSet& set) noexcept {
  // The portable level has no strips of these widths. These strips take one key at a time, because the compiler would
  // need minutes to unroll wide blocks of vectors of four lanes.
  static_cast<StripFunctions&>(set.strips[0]) = Strip<1, 8>::kFunctions;
  static_cast<StripFunctions&>(set.strips[1]) = Strip<1, 4>::kFunctions;
  SetTileFunctions(set);
}

}  // namespace fa::core::kernels::amx_emulated
