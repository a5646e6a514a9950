#include "ops/tile/tile_scratch.h"

#include <algorithm>

#include "ops/plan/carver.h"

namespace fa::ops {
namespace {

/// Returns for how many keys the scores of a strip are held at once.
int64_t ScoreKeys(const tiling::AttentionProblem& problem, int64_t block_k) {
  int64_t keys = block_k;
  if (!problem.whole_rows) return keys;
  for (const tiling::Sequence& sequence : problem.sequences) keys = std::max(keys, sequence.sk);
  return keys;
}

TileScratch Layout(Carver& carver, const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k,
                   bool convert, bool stage_bias, bool tiles) {
  // No strip of a tile is wider than its first, so MostLanes bounds the lanes.
  const int64_t rows = MostLanes(tile_rows);
  TileScratch scratch;
  scratch.panels = carver.Floats(rows, (problem.d + problem.d_rope));
  scratch.state = carver.Floats(rows, problem.dv);
  scratch.backup = carver.Floats(kMaxStripWidth, problem.dv);
  scratch.scores = carver.Floats(kMaxStripWidth, ScoreKeys(problem, block_k));
  if (problem.whole_rows) {
    scratch.queries = carver.Floats(kMaxStripWidth, problem.d + problem.d_rope);
    scratch.totals = carver.Array<double>(kMaxStripWidth, problem.dv);
  }
  scratch.stats = carver.Floats(2, rows);
  if (convert) {
    scratch.k_block = carver.Floats(block_k, problem.d);
    scratch.k_rope_block = carver.Floats(block_k, problem.d_rope);
    scratch.v_block = carver.Floats(block_k, problem.dv);
  }
  if (problem.joins_pieces) {
    const auto rows = [&](int64_t columns) {
      return reinterpret_cast<std::byte*>(carver.Floats(kJoinedRows, columns));  // no element has more than 4 bytes
    };
    scratch.joined_k = rows(std::max({problem.d, problem.d_rope, problem.dv}));
    scratch.joined_k_rope = rows(problem.d_rope);
    scratch.joined_v = rows(problem.dv);
  }
  if (tiles) {
    scratch.attended = carver.Array<char>(core::kernels::TileAttendArgs::kMemoryBytes);
    scratch.attended_lanes = carver.Floats(3, rows);
    scratch.good = carver.Floats(rows, problem.dv + 2);
  }
  if (stage_bias) scratch.bias = carver.Floats(kMaxStripWidth, block_k);
  return scratch;
}

}  // namespace

size_t TileScratch::Bytes(const tiling::AttentionProblem& problem, int64_t tile_rows, int64_t block_k, bool convert,
                          bool stage_bias, bool tiles) {
  Carver carver(nullptr);
  Layout(carver, problem, tile_rows, block_k, convert, stage_bias, tiles);
  return carver.used();
}

TileScratch TileScratch::Carve(std::byte* memory, const tiling::AttentionProblem& problem, int64_t tile_rows,
                               int64_t block_k, bool convert, bool stage_bias, bool tiles) {
  Carver carver(memory);
  return Layout(carver, problem, tile_rows, block_k, convert, stage_bias, tiles);
}

}  // namespace fa::ops
