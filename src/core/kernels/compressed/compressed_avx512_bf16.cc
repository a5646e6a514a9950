#include "core/kernels/levels/kernel_level.h"

#define FA_KERNELS_OF_AVX512_BF16

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec/vec_words_avx512.h"
// These kernels use the functions of the vec_*.h files above.
#include "core/kernels/compressed/compressed_words.inc"

/// Computes `attend_compressed` of R rows of 16-bit queries.
template <int R>
struct CompressedPairs {
  static void Attend(const AttendArgs& x) {
    switch (x.k.dtype) {
      case DType::kI8: return CompressedWords<R, DType::kI8>::Attend(x);
      case DType::kF8E4M3: return CompressedWords<R, DType::kF8E4M3>::Attend(x);
      case DType::kF8E5M2: return CompressedWords<R, DType::kF8E5M2>::Attend(x);
      default: return CompressedWords<R, DType::kI4x8>::Attend(x);
    }
  }
};

}  // namespace

void SetCompressedPairs(KernelSet& set) noexcept {
  for (int i = 0; i < set.table.few_count; ++i) {
    auto& attend = set.few[i].few_rows.attend_compressed;
#define FA_FEW_PAIR_KERNELS(level, r) \
  if (set.few[i].rows == (r)) attend = CompressedPairs<r>::Attend;
#include "core/kernels/levels/kernels.inc"
  }
}

}  // namespace fa::core::kernels::avx512_bf16
