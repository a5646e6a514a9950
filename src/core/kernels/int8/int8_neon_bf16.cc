#include <arm_neon.h>

#include "core/kernels/int8/int8_kernel_level.h"

#define FA_INT8_KERNELS_NEON_BF16
#define FA_WORDS "core/kernels/int8/int8_words_by_lane.inc"

namespace fa::core::kernels::neon_bf16 {
namespace {

#include "core/kernels/vec/vec_neon.h"
// The words stand on the vocabulary above,
#include "core/kernels/vec/vec_int8_neon_dotprod.h"
// the blocks on the words,
#include "core/kernels/vec/vec_int8_neon_matrix.h"
// packing on all of them.
#include "core/kernels/int8/int8_pack_blocks.inc"
// What every level's strips do, their products apart,
#include "core/kernels/int8/int8_strip_kernels.inc"
// which name the packing.
#include "core/kernels/int8/int8_block_kernels.inc"

constexpr int kColumns = 8;
#define FA_INT8_KERNELS(level, rows, width, vectors) \
  Int8BlockStrip<rows, vectors>::Table(FA_STRIP_NAME(level, i8, rows, width), Isa::kNeonBf16),
constexpr Int8Kernels kStrips[] = {
#include "core/kernels/int8/int8_kernels.inc"
};

constexpr Int8Table kTable = {
    Isa::kNeonBf16,       kStrips, sizeof(kStrips) / sizeof(kStrips[0]), kGroup, kColumns, PackKeys,
    PackValues<kColumns>, Quantize};

}  // namespace

const Int8Table& Int8() { return kTable; }

}  // namespace fa::core::kernels::neon_bf16
