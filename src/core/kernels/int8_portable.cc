#include "core/kernels/int8_kernel_level.h"

namespace fa::core::kernels::portable {
namespace {

#include "core/kernels/vec_portable.h"
// The words stand on the vocabulary above.
#include "core/kernels/vec_int8_portable.h"
// Packing and kernels stand on both.
#include "core/kernels/int8_pack_pairs.inc"
// The kernels name the packing.
#include "core/kernels/int8_strip_kernels.inc"

#define FA_INT8_KERNELS_PORTABLE
#define FA_INT8_KERNELS(level, rows, width, vectors) \
  Int8Strip<rows, vectors>::Table(FA_STRIP_NAME(level, i8, rows, width), Isa::kPortable),
constexpr Int8Kernels kStrips[] = {
#include "core/kernels/int8_kernels.inc"
};

}  // namespace

const Int8Table& Int8() {
  static constexpr Int8Table kTable = {
      Isa::kPortable, kStrips, sizeof(kStrips) / sizeof(kStrips[0]), kGroup, 4, PackKeys, PackValues<4>, Quantise};
  return kTable;
}

}  // namespace fa::core::kernels::portable
