#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx512Bf16
#define FA_PAIR_KERNELS_AVX512_BF16
#define FA_PAIR_ROW_STATE
#define FA_HEADS_IN_PLACE
#define FA_FEW_ROW_PAIRS

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The words of two bf16 stand on the floats above.
#include "core/kernels/vec/vec_avx512_bf16.h"
// The kernels stand on both vocabularies.
#include "core/kernels/levels/pair_level.inc"

}  // namespace

const KernelTable& FloatTable() noexcept {
  static StripKernels few[kMostFewRows];
  static const KernelTable table = AttendingTable(avx512::Table(), few);
  return table;
}

const KernelTable& Table() noexcept {
  static const KernelTable table = PairTable(FloatTable());
  return table;
}

}  // namespace fa::core::kernels::avx512_bf16
