#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx512Amx
#define FA_INT8_KERNELS_AVX512_AMX

namespace fa::core::kernels::avx512_amx {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The words of two bf16, which the tiles' edges are staged in, stand on the floats above,
#include "core/kernels/vec/vec_avx512_bf16.h"
// and so do those of four bytes.
#include "core/kernels/vec/vec_int8_avx512_vnni.h"
// The tile unit is apart from them.
#include "core/kernels/vec/vec_amx.h"
// What strips of every level share,
#include "core/kernels/register_blocks.inc"
// and the kernels, on all of that.
#include "core/kernels/int8/int8_tile_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::avx512_amx
