// On x86-64 this source is compiled with the flags of avx512_amx, without the flags of the tile unit.
#include "core/kernels/tiles_on_avx512.h"

#if defined(__AVX512BF16__)
#include "core/amx_emulated.h"
#include "core/kernels/levels/kernel_level.h"

namespace fa::core::kernels {
namespace {

#include "core/kernels/vec/vec_amx_emulated.h"
#include "core/kernels/vec/vec_cut_avx512.h"
// The .inc file uses the functions of the vec_*.h files above.
#include "core/kernels/tile_kernels.inc"

}  // namespace

const KernelTable* TilesOnAvx512() {
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw")) return nullptr;
  static KernelSet set;
  if (set.table.strips != nullptr) return &set.table;
  set.table = Kernels(kAmxEmulated, DType::kBF16);
  for (int i = 0; i < 2; ++i) set.strips[i] = set.table.strips[i];
  set.rows = *set.table.rows;
  TileStrip<2>::SetFunctions(set.strips[0]);
  TileStrip<1>::SetFunctions(set.strips[1]);
  SetTileRows(set.rows);
  set.table.strips = set.strips;
  set.table.rows = &set.rows;
  return &set.table;
}

}  // namespace fa::core::kernels
#else
namespace fa::core::kernels {
const KernelTable* TilesOnAvx512() { return nullptr; }
}  // namespace fa::core::kernels
#endif
