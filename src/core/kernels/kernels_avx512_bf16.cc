#include "core/kernels/kernel_level.h"

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec_avx512.h"
// The words of two bf16 stand on the floats above.
#include "core/kernels/vec_avx512_bf16.h"
// The kernels stand on both vocabularies.
#include "core/kernels/register_blocks.inc"
// And on those.
#include "core/kernels/exp2.inc"
// And on those.
#include "core/kernels/pair_kernels.inc"

}  // namespace

const KernelTable& Table() noexcept {
  // Everything but the products is the level below.
  static const KernelTable& f32 = avx512::Table();
#define FA_PAIR_KERNELS_AVX512_BF16
#define FA_PAIR_KERNELS(level, rows, width, vectors) \
  PairStrip<rows, vectors>::Table(FA_STRIP_NAME(level, bf16, rows, width), f32.ForRows(width)),
  static const StripKernels strips[] = {
#include "core/kernels/kernels.inc"
  };
  static const RowKernels rows = PairRowKernels(*f32.rows);
  static const KernelTable table = {Isa::kAvx512Bf16, strips,        sizeof(strips) / sizeof(strips[0]),
                                    f32.few,          f32.few_count, &rows};
  return table;
}

}  // namespace fa::core::kernels::avx512_bf16
