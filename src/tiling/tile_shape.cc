// block_k changes results in their last bits, because it decides where a row's sums are cut. So block_k depends only on
// the ISA, the type and the head sizes. block_q only decides which rows share a tile, so it follows the cache and the
// number of workers.
#include "tiling/tile_shape.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>

#include "core/saturating.h"
#include "tiling/row_cut.h"

namespace fa::tiling {
namespace {

constexpr int64_t kFloatBytes = 4;  // 16-bit K and V are widened to f32 panels before they are multiplied

// K and V of one key block take a quarter of the 1 MiB of L2 of Zen 4 and of server cores with AVX-512. They take half
// of the 512 KiB of L2 of Zen 2 and 3 and Kunpeng 920. The rest holds Q and O of the tile and the probabilities of a
// strip. A limit of half this size loses 4 % of the speed on a Zen 3 at D 256.
constexpr int64_t kKeyBlockBytes = 256 << 10;

// The probabilities of a strip must stay in L1 (32 KiB or more), because the product with V reads them again for every
// eight columns. More than 256 keys gain nothing: the accumulators are loaded and stored only once per 256 keys. With
// fewer than 32 keys, most time goes into loading and rescaling O.
constexpr int64_t kStripBytes = 32 << 10;
constexpr int64_t kMinBlockK = 32;
constexpr int64_t kBlockKStep = 32;  // a multiple of every register tile's rows

// The fewest flops of a tile. At 100 GFLOP/s they take ten microseconds; waking a worker takes some microseconds.
constexpr double kMinTileFlops = 1e6;

// The time to read a tile's keys into L2. The unit is the time that the products of one row take. The number is a
// model: a tile of 128 rows loses 3 % of its time, a tile of 32 rows 11 %.
constexpr double kTileOverheadRows = 4;

int64_t RowBytes(const AttentionProblem& problem) { return kFloatBytes * (problem.d + problem.d_rope + problem.dv); }

int64_t ChooseBlockK(const AttentionProblem& problem, const Machine& machine) {
  const int64_t keys = std::min(kKeyBlockBytes / std::max<int64_t>(RowBytes(problem), 1),
                                kStripBytes / (kFloatBytes * machine.strip_rows));
  return std::clamp(keys / kBlockKStep * kBlockKStep, kMinBlockK, kMaxBlockK);
}

struct TileCount {
  int64_t tiles = 0;
  int64_t rows = 0;      // rows of all tiles together
  int64_t max_rows = 0;  // number of rows of the largest tile, over all of the tile's heads
};

TileCount CountTiles(const AttentionProblem& problem, int64_t block_q, int64_t strip_rows) {
  TileCount count;
  for (const Sequence& sequence : problem.sequences) {
    if (sequence.sq == 0) continue;
    const RowCut cut = CutRows(sequence.sq, problem.group(), block_q, strip_rows);
    count.tiles = core::SaturatedSum(count.tiles, core::SaturatedProduct(problem.heads_kv, cut.tiles()));
    count.rows = core::SaturatedSum(count.rows, core::SaturatedProduct(problem.heads, sequence.sq));
    count.max_rows = std::max(count.max_rows, cut.heads * cut.rows);
  }
  return count;
}

double KeptPairs(const AttentionProblem& problem) {
  double pairs = 0;
  for (const Sequence& sequence : problem.sequences) {
    pairs += static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
  }
  return pairs * static_cast<double>(problem.heads);
}

// Returns the number of (row, key) pairs of the heaviest tile. With every mask, the heaviest tile of a head is its
// first tile or one of its last two tiles. The last tile may have too few rows to be the heaviest.
double HeaviestTile(const AttentionProblem& problem, int64_t block_q, int64_t strip_rows) {
  double heaviest = 0;
  for (const Sequence& sequence : problem.sequences) {
    if (sequence.sq == 0) continue;
    const RowCut cut = CutRows(sequence.sq, problem.group(), block_q, strip_rows);
    for (const int64_t block : {int64_t{0}, std::max<int64_t>(cut.row_blocks - 2, 0), cut.row_blocks - 1}) {
      const Interval rows{block * cut.rows, (block + 1) * cut.rows};
      const auto pairs = static_cast<double>(sequence.rule.KeptPairs(rows));
      heaviest = std::max(heaviest, pairs * static_cast<double>(cut.heads));
    }
  }
  return heaviest;
}

// Predicts, by a model, the share of the workers' time that goes into matrix products.
double PredictedUse(const TileCount& count, double pairs, double heaviest_pairs, int workers) {
  const auto tiles = static_cast<double>(count.tiles);
  // The number of pairs of the heaviest tile, relative to the mean over all tiles.
  const double heaviest = heaviest_pairs > 0 ? heaviest_pairs * tiles / pairs : 1;
  double makespan = 0;
  if (heaviest < 1.25) {
    makespan = std::ceil(tiles / workers) * heaviest;  // tiles are about equal, so they run in rounds
  } else {
    // In each round a worker runs a heavy and a light tile (claim_order.cc), which take as long as two mean tiles. No
    // run is shorter than its heaviest tile.
    const double pair_rounds = std::ceil(tiles / (2 * workers));
    makespan = std::max(pair_rounds <= 1 ? tiles / workers : 2 * pair_rounds, heaviest);
  }
  const double rows = static_cast<double>(count.rows) / tiles;
  return tiles / (makespan * workers) * rows / (rows + kTileOverheadRows);
}

struct RowChoice {
  int64_t block_q = 0;
  TileCount count;
};

RowChoice CountedRows(const AttentionProblem& problem, const Machine& machine, int64_t block_q) {
  return {block_q, CountTiles(problem, block_q, machine.strip_rows)};
}

RowChoice ChooseBlockQ(const AttentionProblem& problem, const Machine& machine) {
  const int64_t strip = machine.strip_rows;
  const auto whole_strips = [strip](int64_t rows) { return std::max(rows / strip, int64_t{1}) * strip; };
  const auto choose = [&](int64_t rows) { return CountedRows(problem, machine, rows); };
  // Q and O of the tile take at most a quarter of L2, so that both stay there together with the key block.
  const int64_t cached_rows = machine.l2_bytes / 4 / std::max<int64_t>(RowBytes(problem), 1);
  const int64_t most_rows = whole_strips(std::min(FullBlockQ(problem.packs_tiles) + strip - 1, cached_rows));

  const bool chosen = problem.tile_eighths > 0;
  RowChoice best = choose(chosen ? whole_strips(most_rows * problem.tile_eighths / 8) : most_rows);
  // With eight tiles per worker or more, little time is lost at the end of a run, whatever block_q is.
  if (!chosen && machine.workers > 1 && best.count.tiles > 0 && best.count.tiles < int64_t{8} * machine.workers) {
    const double pairs = KeptPairs(problem);
    const double min_tile_pairs = kMinTileFlops / (2 * static_cast<double>(problem.d + problem.d_rope + problem.dv));
    const auto use = [&](const RowChoice& choice) {
      return PredictedUse(choice.count, pairs, HeaviestTile(problem, choice.block_q, strip), machine.workers);
    };
    double best_use = use(best);
    for (const int64_t rows : {most_rows * 3 / 4, most_rows / 2, most_rows / 4, most_rows / 8}) {
      if (rows < most_rows / (problem.packs_tiles ? 8 : 4)) break;
      const RowChoice choice = choose(whole_strips(rows));
      if (pairs < min_tile_pairs * static_cast<double>(choice.count.tiles)) break;
      if (const double choice_use = use(choice); choice_use > best_use) {
        best = choice;
        best_use = choice_use;
      }
    }
  }
  if (chosen) {
    // A chosen block_q stays as it is even if the largest tile has fewer rows. Only sequences that have fewer rows in
    // total reduce block_q.
    for (const Sequence& sequence : problem.sequences) {
      best.count.max_rows = std::max(best.count.max_rows, core::SaturatedProduct(problem.group(), sequence.sq));
    }
  }
  best.block_q = std::min(best.block_q, whole_strips(core::SaturatedSum(best.count.max_rows, strip - 1)));
  return best;
}

}  // namespace

TileShape ChooseTileShape(const AttentionProblem& problem, const Machine& machine) {
  const RowChoice choice = ChooseBlockQ(problem, machine);
  // No level's strip has more than kMaxStripRows rows, so block_q <= kMaxBlockQ.
  assert(choice.block_q < FullBlockQ(problem.packs_tiles) + machine.strip_rows);
  TileShape shape{.block_q = choice.block_q, .block_k = ChooseBlockK(problem, machine), .reason = {}};

  std::array<char, 160> reason{};
  const auto kib = [&](int64_t rows) { return static_cast<long long>(rows * RowBytes(problem) >> 10); };
  std::snprintf(reason.data(), reason.size(),
                "K and V of %lld keys take %lld KiB of L2, Q and O of %lld rows %lld KiB; "
                "%lld tiles for %d workers",
                static_cast<long long>(shape.block_k), kib(shape.block_k), static_cast<long long>(shape.block_q),
                kib(shape.block_q), static_cast<long long>(choice.count.tiles), machine.workers);
  shape.reason = reason.data();
  return shape;
}

}  // namespace fa::tiling
