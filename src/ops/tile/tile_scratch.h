#ifndef FA_OPS_TILE_SCRATCH_H_
#define FA_OPS_TILE_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "ops/tile/strip.h"
#include "tiling/problem.h"

namespace fa::ops {

/// The most rows that are joined at once (TileScratch::joined_k), and the most keys per call of ForwardStrips::Attend.
inline constexpr int64_t kJoinedRows = 512;

/// A worker's own memory for one tile task, carved from the workspace.
struct TileScratch {
  float* panels = nullptr;   ///< packed queries, strip after strip: [d + d_rope][width]
  float* state = nullptr;    ///< output state, strip after strip: [dv][width]
  float* backup = nullptr;   ///< [dv][width]: a copy of a strip's state, taken before a block that may have to be
                             ///< repeated on the exact path
  float* scores = nullptr;   ///< [block_k][width], with whole rows [keys][width]
  float* queries = nullptr;  ///< [width][d + d_rope], scaled queries of a strip; null unless problem.whole_rows
  double* totals = nullptr;  ///< [dv][width], sums of a strip's states over parts of the keys; null like `queries`
  float* stats = nullptr;    ///< strip after strip: row_max and row_sum, each [width]
  float *k_block = nullptr, *k_rope_block = nullptr, *v_block = nullptr;  ///< converted rows of one key block
  /// Memory in which rows that lie in pieces in the caller's tensors are joined, kJoinedRows rows per tensor. joined_k
  /// has room for rows of K, of K's rope part or of V.
  std::byte *joined_k = nullptr, *joined_k_rope = nullptr, *joined_v = nullptr;
  float* bias = nullptr;  ///< [width][block_k]: staged rows of a compressed pse
  // The next three members are memory for attend_tiles.
  char* attended = nullptr;         ///< memory for TileAttendArgs::memory
  float* attended_lanes = nullptr;  ///< strip after strip: `shift`, `largest` and `whole_sum`, each [width]
  float* good = nullptr;  ///< strip after strip: row_max, row_sum and state [dv] that attend_tiles computed, kept while
                          ///< strips visit their keys again

  /// Returns the bytes of scratch per worker. With `convert`, blocks of K and V are converted to f32. With `tiles`,
  /// there is memory for attend_tiles.
  static size_t Bytes(const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k, bool convert,
                      bool stage_bias, bool tiles = false);
  static TileScratch Carve(std::byte* memory, const tiling::AttentionProblem& problem, int64_t tile_rows,
                           int64_t block_k, bool convert, bool stage_bias, bool tiles = false);
};

}  // namespace fa::ops

#endif  // FA_OPS_TILE_SCRATCH_H_
