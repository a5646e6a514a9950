#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kAvx512Amx
#define FA_PAIR_KERNELS_AVX512_AMX

namespace fa::core::kernels::avx512_amx {
namespace {

#include "core/kernels/vec/vec_avx512.h"
// The words of two bf16 stand on the floats above.
#include "core/kernels/vec/vec_avx512_bf16.h"
// The tile unit is apart from both.
#include "core/kernels/vec/vec_amx.h"
// What strips of every level share,
#include "core/kernels/dropout.inc"
#include "core/kernels/exp2.inc"
#include "core/kernels/register_blocks.inc"
#include "core/kernels/softmax_gradient.inc"
#include "core/kernels/softmax_shift.inc"
// and the kernels, on all of that.
#include "core/kernels/levels/tile_level.inc"

}  // namespace

const KernelTable& Table() noexcept {
  static const KernelTable table = TileTable(avx512::Table());
  return table;
}

}  // namespace fa::core::kernels::avx512_amx
