#include "core/kernels/kernel_level.h"

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec_portable.h"
// The kernels stand on the vocabulary above.
#include "core/kernels/dequantize.inc"
#include "core/kernels/register_blocks.inc"
// And on those.
#include "core/kernels/exp2.inc"
// And on those.
#include "core/kernels/strip_kernels.inc"
// And on those.
#include "core/kernels/row_kernels.inc"
// And on those.
#include "core/kernels/row_state_kernels.inc"
// And on those.
#include "core/kernels/few_row_kernels.inc"

#define FA_STRIP_KERNELS_PORTABLE
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  Strip<rows, vectors>::Table(FA_STRIP_NAME(level, type, rows, width), Isa::kPortable),
#define FA_FEW_ROW_KERNELS(level, rows)
constexpr StripKernels kStrips[] = {
#include "core/kernels/kernels.inc"
};
#undef FA_STRIP_KERNELS
#define FA_STRIP_KERNELS(level, type, rows, width, vectors)             \
  RowState<vectors>::Table(FA_ROW_STATE_NAME(level, type, rows, width), \
                           Strip<rows, vectors>::Table("", Isa::kPortable)),
constexpr StripKernels kRowState[] = {
#include "core/kernels/kernels.inc"
};
#undef FA_STRIP_KERNELS
#undef FA_FEW_ROW_KERNELS
#define FA_STRIP_KERNELS(level, type, rows, width, vectors)
#define FA_FEW_ROW_KERNELS(level, rows) FewRows<rows>::Table(FA_FEW_ROW_NAME(level, rows), kNarrowest),
constexpr const StripKernels& kNarrowest = kStrips[sizeof(kStrips) / sizeof(kStrips[0]) - 1];
constexpr StripKernels kFew[] = {
#include "core/kernels/kernels.inc"
};

}  // namespace

const KernelTable& Table() noexcept {
  static constexpr KernelTable kTable = {
      Isa::kPortable, kStrips,  sizeof(kStrips) / sizeof(kStrips[0]), kFew, sizeof(kFew) / sizeof(kFew[0]),
      &kRowKernels,   kRowState};
  return kTable;
}

}  // namespace fa::core::kernels::portable
