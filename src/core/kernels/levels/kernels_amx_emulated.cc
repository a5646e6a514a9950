// The kernels of avx512_amx over vocabularies that any CPU executes, for builds with tests: vectors of the portable
// level, and the tile unit as its emulation. The products are the same text; strips and their tiles have the same
// sizes.

#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kAmxEmulated
#define FA_PAIR_KERNELS_AMX_EMULATED

namespace fa::core::kernels::amx_emulated {
namespace {

#include "core/kernels/vec/vec_portable.h"
// The words of two bf16 stand on the floats above.
#include "core/kernels/vec/vec_pairs_emulated.h"
// The tile unit is apart from both.
#include "core/kernels/vec/vec_amx_emulated.h"
// What strips of every level share,
#include "core/kernels/dropout.inc"
#include "core/kernels/exp2.inc"
#include "core/kernels/register_blocks.inc"
#include "core/kernels/softmax_gradient.inc"
#include "core/kernels/softmax_shift.inc"
// the f32 strips for everything but products,
#include "core/kernels/capped_tanh.inc"
#include "core/kernels/factors_broadcast.inc"
#include "core/kernels/lane_rows.inc"
#include "core/kernels/multiply_add.inc"
#include "core/kernels/strip_kernels.inc"
// and the kernels, on all of that.
#include "core/kernels/levels/tile_level.inc"

}  // namespace

const KernelTable& Table() noexcept {
  // One key at a time: the compiler would unroll wide blocks of four lanes for minutes.
  static const StripKernels strips[] = {Strip<1, 8>::Table("f32_1x32_amx_emulated", FA_LEVEL_ISA),
                                        Strip<1, 4>::Table("f32_1x16_amx_emulated", FA_LEVEL_ISA)};
  static const KernelTable f32 = [] {
    KernelTable table = portable::Table();
    table.strips = strips;
    table.strip_count = 2;
    return table;
  }();
  static const KernelTable table = TileTable(f32);
  return table;
}

}  // namespace fa::core::kernels::amx_emulated
