#include "core/kernels/emulated_pairs.h"

#include "core/kernels/levels/kernel_level.h"

// Code that asks for the level's other kernels gets the portable ones.
#define FA_LEVEL_ISA Isa::kPortable

namespace fa::core::kernels {
namespace {

#include "core/kernels/vec/vec_portable.h"
// These are the additions that vec_avx512_bf16.h has.
#include "core/kernels/register_blocks.inc"
#include "core/kernels/vec/vec_pairs_emulated.h"
// The next files are written for both vocabularies.
#include "core/kernels/dropout.inc"
#include "core/kernels/exp2.inc"
#include "core/kernels/softmax_gradient.inc"
#include "core/kernels/softmax_shift.inc"
// The next file uses the kernels above.
#include "core/kernels/pair_words.inc"
// The products use all files above.
#include "core/kernels/pair_kernels.inc"
// This file has two outer products at once.
#include "core/kernels/pair_outer_both.inc"
// This file has the product with a state by rows.
#include "core/kernels/row_products.inc"
// These strips use that product.
#include "core/kernels/pair_row_state.inc"
// The strip that reads keys in place uses the same pair words.
#include "core/kernels/pair_heads_in_place.inc"

}  // namespace

const KernelTable& EmulatedPairs() {
  static const KernelTable& f32 = Kernels(Isa::kPortable);
  static const StripKernels strips[] = {PairStrip<6, 2>::Table("emulated_bf16_6x8", f32.ForRows(8)),
                                        PairStrip<12, 1>::Table("emulated_bf16_12x4", f32.ForRows(4))};
  static const StripKernels row_state[] = {
      PairRowState<2>::Table("emulated_bf16_6x8_row_state", strips[0], f32.WithRowState(f32.ForRows(8))),
      PairRowState<1>::Table("emulated_bf16_12x4_row_state", strips[1], f32.WithRowState(f32.ForRows(4)))};
  static const StripKernels in_place =
      PairHeadsInPlace<1>::Table("emulated_bf16_12x4_in_place", strips[1], f32.WithRowState(f32.narrowest()));
  static const RowKernels rows = [] {
    RowKernels of_pairs = PairRowKernels(*f32.rows);
    of_pairs.outer_both = OuterBoth;
    return of_pairs;
  }();
  static const KernelTable table = {
      Isa::kPortable, strips, sizeof(strips) / sizeof(strips[0]), f32.few, f32.few_count, &rows, row_state, &in_place};
  return table;
}

}  // namespace fa::core::kernels
