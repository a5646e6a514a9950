#ifndef FA_CORE_KERNELS_TILE_USE_H_
#define FA_CORE_KERNELS_TILE_USE_H_

#include <cstdint>

/// The state of the tile unit (AMX) that the calling thread holds. A kernel that finds its thread without a
/// configuration loads one. Loading costs some 200 cycles, as much as a dozen tile products, so the configuration stays
/// until the thread ends its tasks. Then the tiles are released, because switching a thread with live tiles moves 8 KiB
/// more. Moreover, other libraries in the program may use tile configurations of their own.
///
/// Only UseTiles of vec/vec_amx.h configures the unit, and only ReleaseConfiguredTiles releases it
/// (scripts/check_tile_instructions.sh). Other code that uses the unit, as tools/peak does, calls these functions in a
/// scope of its own. Otherwise a kernel would use tiles that other code has released, and die of SIGILL.
namespace fa::core::kernels {

enum class TileUse : uint8_t { kNone, kInstructions, kEmulated };

extern thread_local constinit TileUse tile_use;

void ReleaseConfiguredTiles() noexcept;

/// A scope in which kernels may configure tiles. Its end releases the tiles that kernels of the thread have configured.
/// No kernel configures tiles outside a scope.
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
