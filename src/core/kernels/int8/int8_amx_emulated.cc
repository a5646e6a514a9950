// The int8 kernels of avx512_amx over vocabularies that any CPU executes, for builds with tests.

#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kAmxEmulated
#define FA_INT8_KERNELS_AMX_EMULATED

namespace fa::core::kernels::amx_emulated {
namespace {

#include "core/kernels/vec/vec_portable.h"
// The words of two bf16, which the tiles' edges are staged in, stand on the floats above,
#include "core/kernels/vec/vec_pairs_emulated.h"
// and so do those of four bytes.
#include "core/kernels/vec/vec_int8_emulated.h"
// The tile unit is apart from them.
#include "core/kernels/vec/vec_amx_emulated.h"
// What strips of every level share,
#include "core/kernels/register_blocks.inc"
// and the kernels, on all of that.
#include "core/kernels/int8/int8_tile_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::amx_emulated
