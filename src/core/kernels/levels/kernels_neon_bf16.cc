#include <arm_neon.h>

#include "core/kernels/levels/kernel_level.h"

#define FA_LEVEL_ISA Isa::kNeonBf16
#define FA_PAIR_KERNELS_NEON_BF16

namespace fa::core::kernels::neon_bf16 {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The words of two bf16 stand on the floats above,
#include "core/kernels/vec/vec_neon_bf16.h"
// the blocks on the words,
#include "core/kernels/vec/vec_neon_bf16_matrix.h"
// the kernels on all of them.
#include "core/kernels/levels/pair_block_level.inc"

}  // namespace

const KernelTable& Table() noexcept {
  static const KernelTable table = BlockTable(neon::Table());
  return table;
}

}  // namespace fa::core::kernels::neon_bf16
