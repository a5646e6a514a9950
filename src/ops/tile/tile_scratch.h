#ifndef FA_OPS_TILE_SCRATCH_H_
#define FA_OPS_TILE_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/tile/strip.h"
#include "tiling/problem.h"

namespace fa::ops {

/// If the softmax overlaps the products, three blocks are in work at a time: scores of one are computed, those of
/// another become probabilities, and those of a third are multiplied. Each has its own memory.
inline constexpr int kScoreTilesInFlight = 3;

/// A worker's own memory for one tile task, carved from the workspace.
struct TileScratch {
  float* panels = nullptr;   ///< packed queries, strip after strip: [d + d_rope][width]
  float* state = nullptr;    ///< output state, strip after strip: [dv][width]
  float* backup = nullptr;   ///< [dv][width]: a copy of a strip's state, taken before a block that may have to be
                             ///< computed again
  float* scores = nullptr;   ///< scores [block_k][width], or several such tiles
  int64_t score_floats = 0;  ///< number of floats from one tile to the next
  float* stats = nullptr;    ///< strip after strip: row_max and row_sum, each [width]
  float *k_block = nullptr, *k_rope_block = nullptr, *v_block = nullptr;  ///< converted rows of one key block
  float* bias = nullptr;  ///< [width][block_k]: staged rows of a compressed pse

  /// Returns the bytes of scratch per worker. With `convert`, blocks of K and V are converted to f32. With `in_flight`,
  /// there are kScoreTilesInFlight tiles of scores.
  static size_t Bytes(const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k, bool convert,
                      bool stage_bias, bool in_flight = false);
  static TileScratch Carve(std::byte* memory, const tiling::AttentionProblem& problem, int64_t tile_rows,
                           int64_t block_k, bool convert, bool stage_bias, bool in_flight = false);
};

}  // namespace fa::ops

#endif  // FA_OPS_TILE_SCRATCH_H_
