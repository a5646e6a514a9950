#include "core/kernels/kernel_level.h"

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec_portable.h"
// The kernels stand on the vocabulary above.
#include "core/kernels/strip_kernels.inc"

#define FA_STRIP_KERNELS_PORTABLE
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  Strip<rows, vectors>::Table(FA_STRIP_NAME(level, type, rows, width), Isa::kPortable),
constexpr StripKernels kStrips[] = {
#include "core/kernels/kernels.inc"
};

}  // namespace

const KernelTable& Table() {
  static constexpr KernelTable kTable = {Isa::kPortable, kStrips, sizeof(kStrips) / sizeof(kStrips[0]), &kRowKernels};
  return kTable;
}

}  // namespace fa::core::kernels::portable
