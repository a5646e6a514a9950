// This source is compiled with AVX512_VBMI. Of the CPUs of this level, only one generation (Cooper Lake) lacks
// AVX512_VBMI. There compressed_avx512_bf16.cc serves, with the same bits.
#include "core/kernels/compressed/group_order.h"
#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX512_BF16

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec/vec_byte_floats_avx512.h"
// These kernels use the functions of the vec_*.h files above.
#include "core/kernels/compressed/byte_float_words.inc"

}  // namespace

void SetByteFloatWordsByBytes(KernelSet& set) noexcept {
#define FA_FEW_WORD_KERNELS(level, r)                                                           \
  for (int i = 0; i < set.table.few_count; ++i) {                                               \
    if (set.few[i].rows == (r)) set.few[i].few_rows.attend_byte_floats = AttendToByteFloats<r>; \
  }
#include "core/kernels/levels/kernels.inc"
}

}  // namespace fa::core::kernels::avx512_bf16
