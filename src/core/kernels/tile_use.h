#ifndef FA_CORE_KERNELS_TILE_USE_H_
#define FA_CORE_KERNELS_TILE_USE_H_

#include <cstdint>

/// The state of the tile unit (AMX) that the calling thread holds. A kernel that finds its thread without a
/// configuration loads one. Loading costs some 200 cycles, as much as a dozen tile products, so the configuration stays
/// until the thread ends its tasks. Then it is released: a thread with live tiles takes 8 KiB more to switch, and a
/// caller's other libraries have configurations of their own.
///
/// Only UseTiles of vec/vec_amx.h configures the unit, and only ReleaseConfiguredTiles releases it
/// (scripts/check_tile_instructions.sh). Other code that uses the unit, as tools/peak does, calls them in a scope of
/// its own. Otherwise a kernel would miss a configuration that somebody else has released, and die of SIGILL.
namespace fa::core::kernels {

enum class TileUse : uint8_t { kNone, kInstructions, kEmulated };

extern thread_local constinit TileUse tile_use;

void ReleaseConfiguredTiles() noexcept;

/// The end of a scope releases the tiles that kernels of its thread configured. Outside a scope no kernel configures
/// any.
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
