#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx2
#define FA_INT8_COLUMNS 6
#define FA_INT8_KERNELS_AVX2
#define FA_WORDS "core/kernels/int8/int8_words_broadcast.inc"

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec/vec_avx2.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec/vec_int8_avx2.h"
// Packing stands on both.
#include "core/kernels/int8/int8_pack_pairs.inc"
// The kernels name the packing.
#include "core/kernels/int8/int8_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::avx2
