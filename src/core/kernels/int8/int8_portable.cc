#include "core/kernels/int8/int8_kernel_level.h"

#define FA_LEVEL_ISA Isa::kPortable
#define FA_INT8_COLUMNS 4
#define FA_INT8_KERNELS_PORTABLE
#define FA_WORDS "core/kernels/int8/int8_words_broadcast.inc"

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec/vec_portable.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec/vec_int8_portable.h"
// Packing stands on both.
#include "core/kernels/int8/int8_pack_pairs.inc"
// The kernels name the packing.
#include "core/kernels/int8/int8_level.inc"

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::portable
