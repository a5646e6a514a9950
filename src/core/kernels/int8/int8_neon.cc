#include <arm_neon.h>

#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kNeon
#define FA_INT8_COLUMNS 6
#define FA_INT8_KERNELS_NEON
#define FA_WORDS "core/kernels/int8/int8_words_broadcast.inc"

namespace fa::core::kernels::neon {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec/vec_int8_neon.h"
// Packing stands on both.
#include "core/kernels/int8/int8_pack_pairs.inc"
// The kernels name the packing.
#include "core/kernels/int8/int8_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::neon
