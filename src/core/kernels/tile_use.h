#ifndef FA_CORE_KERNELS_TILE_USE_H_
#define FA_CORE_KERNELS_TILE_USE_H_

#include <cstdint>

/// How the calling thread holds the tile unit (AMX). A kernel that finds its thread without a configuration loads one.
/// This costs some 200 cycles, as much as a dozen tile products, so the configuration stays until the thread ends its
/// tasks. Then the tiles are released, because otherwise every thread switch saves and loads 8 KiB more. Moreover,
/// other libraries in the program may use tile configurations of their own.
///
/// Only UseTiles of vec/vec_amx.h configures the unit, and only ReleaseConfiguredTiles releases it
/// (scripts/check_tile_instructions.sh). Other code that uses the unit, such as tools/peak, must call these functions
/// in a TileScope of its own. If other code released the tiles in another way, a kernel would still use them, and
/// SIGILL would end the process.
namespace fa::core::kernels {

enum class TileUse : uint8_t { kNone, kInstructions, kEmulated };

extern thread_local constinit TileUse tile_use;

void ReleaseConfiguredTiles() noexcept;

/// While a TileScope lives, kernels on its thread may configure tiles. Its destructor releases the tiles. Without a
/// TileScope, kernels configure no tiles.
class TileScope {
 public:
  TileScope() noexcept = default;
  ~TileScope() {
    if (tile_use != TileUse::kNone) ReleaseConfiguredTiles();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace fa::core::kernels

#endif  // FA_CORE_KERNELS_TILE_USE_H_
