#include "core/kernels/compressed/group_order.h"
#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX512_VNNI

namespace fa::core::kernels::avx512_vnni {
namespace {

#include "core/kernels/vec/vec_words_avx512.h"
// These kernels use the functions of the vec_*.h files above.
#include "core/kernels/compressed/integer_words.inc"

}  // namespace

void SetIntegerWords(KernelSet& set) noexcept {
#define FA_FEW_WORD_KERNELS(level, r)                                                      \
  for (int i = 0; i < set.table.few_count; ++i) {                                          \
    if (set.few[i].rows == (r)) set.few[i].few_rows.attend_integers = AttendToIntegers<r>; \
  }
#include "core/kernels/levels/kernels.inc"
}

}  // namespace fa::core::kernels::avx512_vnni
