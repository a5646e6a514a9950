// The int8 kernels of avx512_amx with an emulated tile unit, for any CPU, in builds with tests.

#include "core/kernels/levels/kernel_level.h"

#define FA_PACKING "core/kernels/int8/int8_pack_tiles.inc"
#define FA_WORDS "core/kernels/int8/int8_words_broadcast.inc"
#define FA_INT8_STRIPS "core/kernels/int8/int8_tile_kernels.inc"
#define FA_INT8_STRIP Int8TileStrip
#define FA_KERNELS_OF_AMX_EMULATED

namespace fa::core::kernels::amx_emulated {
namespace {

#include "core/kernels/vec/vec_amx_emulated.h"
#include "core/kernels/vec/vec_int8_emulated.h"
#include "core/kernels/vec/vec_pairs_emulated.h"
// The kernels below use the functions of the vec_*.h files above.
#include "core/kernels/int8/int8_level.inc"

}  // namespace

void SetInt8Functions(Int8Set& set) noexcept { SetFunctionsOfInt8(set); }

}  // namespace fa::core::kernels::amx_emulated
