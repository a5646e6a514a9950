#include "core/kernels/backward_words.h"
#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx512Bf16
#define FA_PAIR_KERNELS_AVX512_BF16
#define FA_LAST_STEPS 2
#define FA_HEADS_IN_PLACE

namespace fa::core::kernels::avx512_bf16 {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The words of two bf16 stand on the floats above.
#include "core/kernels/vec/vec_avx512_bf16.h"
// The kernels stand on both vocabularies.
#include "core/kernels/levels/pair_level.inc"
// This pass stands on the words of pair_level.inc,
#include "core/kernels/backward_element.inc"
#include "core/kernels/backward_words.inc"

/// The f32 products with this level's FA_LAST_STEPS.
namespace f32 {
#include "core/kernels/dequantize.inc"
#include "core/kernels/register_blocks.inc"
// The steps fill the register blocks; the strips take the steps.
#include "core/kernels/factors_broadcast.inc"
#include "core/kernels/strip_kernels.inc"
// Those over rows take the strips' micro-kernel.
#include "core/kernels/row_kernels.inc"
}  // namespace f32

template <int MR, int NV>
StripKernels WithProducts(StripKernels strip) {
  strip.scores = f32::Strip<MR, NV>::Scores;
  strip.product = f32::Strip<MR, NV>::Product;
  return strip;
}

StripKernels WithScores(StripKernels row_state, const StripKernels& strip) {
  row_state.scores = strip.scores;
  return row_state;
}

KernelTable MakeF32Table(const KernelTable& f32) {
  static const StripKernels strips[] = {WithProducts<8, 3>(f32.strips[0]), WithProducts<8, 2>(f32.strips[1]),
                                        WithProducts<16, 1>(f32.strips[2])};
  static const StripKernels row_state[] = {WithScores(f32.row_state[0], strips[0]),
                                           WithScores(f32.row_state[1], strips[1]),
                                           WithScores(f32.row_state[2], strips[2])};
  static const RowKernels rows = [&] {
    RowKernels kernels = *f32.rows;
    kernels.outer = f32::Outer;
    return kernels;
  }();
  KernelTable table = f32;
  table.strips = strips;
  table.row_state = row_state;
  table.rows = &rows;
  return table;
}

}  // namespace

const KernelTable& Table() noexcept {
  static const KernelTable table = PairTable(avx512::Table());
  return table;
}

const KernelTable& F32Table() noexcept {
  static const KernelTable table = MakeF32Table(avx512::Table());
  return table;
}

BackwardWordsKernel* BackwardWordsOfWidth(int64_t width) {
  return width == 48 ? BackwardWords<3>::Run : width == 32 ? BackwardWords<2>::Run : BackwardWords<1>::Run;
}

}  // namespace fa::core::kernels::avx512_bf16
