#include "core/kernels/int8_kernel_level.h"

namespace fa::core::kernels::avx2 {
namespace {

#include "core/kernels/vec_avx2.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec_int8_avx2.h"
// Packing and kernels stand on both.
#include "core/kernels/int8_pack_pairs.inc"
// The kernels name the packing.
#include "core/kernels/int8_strip_kernels.inc"

#define FA_INT8_KERNELS_AVX2
#define FA_INT8_KERNELS(level, rows, width, vectors) \
  Int8Strip<rows, vectors>::Table(FA_STRIP_NAME(level, i8, rows, width), Isa::kAvx2),
constexpr Int8Kernels kStrips[] = {
#include "core/kernels/int8_kernels.inc"
};

}  // namespace

const Int8Table& Int8() {
  static constexpr Int8Table kTable = {
      Isa::kAvx2, kStrips, sizeof(kStrips) / sizeof(kStrips[0]), kGroup, 6, PackKeys, PackValues<6>, Quantise};
  return kTable;
}

}  // namespace fa::core::kernels::avx2
