#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx512Vnni
#define FA_INT8_COLUMNS 8
#define FA_INT8_KERNELS_AVX512_VNNI
#define FA_WORDS "core/kernels/int8/int8_words_broadcast.inc"

namespace fa::core::kernels::avx512_vnni {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec/vec_int8_avx512_vnni.h"
// Packing stands on both.
#include "core/kernels/int8/int8_pack_quads.inc"
// The kernels name the packing.
#include "core/kernels/int8/int8_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::avx512_vnni
