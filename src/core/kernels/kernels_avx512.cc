#include "core/kernels/kernel_level.h"

namespace fa::core::kernels::avx512 {
namespace {

#include "core/kernels/vec_avx512.h"
// The kernels stand on the vocabulary above.
#include "core/kernels/strip_kernels.inc"

#define FA_STRIP_KERNELS_AVX512
#define FA_STRIP_KERNELS(level, type, rows, width, vectors) \
  Strip<rows, vectors>::Table(FA_STRIP_NAME(level, type, rows, width), Isa::kAvx512),
constexpr StripKernels kStrips[] = {
#include "core/kernels/kernels.inc"
};

}  // namespace

const KernelTable& Table() {
  static constexpr KernelTable kTable = {Isa::kAvx512, kStrips, sizeof(kStrips) / sizeof(kStrips[0]), &kRowKernels};
  return kTable;
}

}  // namespace fa::core::kernels::avx512
