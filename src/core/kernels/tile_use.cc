#include "core/kernels/tile_use.h"

namespace fa::core::kernels {

thread_local constinit TileUse tile_use = TileUse::kNone;

void ReleaseConfiguredTiles() noexcept {
#if defined(__x86_64__)
  if (tile_use == TileUse::kInstructions) asm volatile("tilerelease");
#endif
  tile_use = TileUse::kNone;
}

}  // namespace fa::core::kernels
