#include "tiling/backward/backward_shape.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>

#include "core/amx_emulated.h"
#include "core/integer.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/row_cut.h"
#include "tiling/tile_shape.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// Bytes of an element in a slot. Sums are f32, and so are the factors of products: 16-bit rows are widened. On levels
// whose instructions multiply pairs of bf16, bf16 factors keep two bytes.
constexpr int64_t kFloatBytes = 4, kPairedBytes = 2;

constexpr int64_t kMinBlockK = 32;

// The fewest flops of a tile. At 100 GFLOP/s they take fifty microseconds, a hundred times as long as handing the tile
// to a worker.
constexpr double kMinTileFlops = 5e6;

// A column keeps K, V, dK, dV and a tile's P and dS in L2 while a worker walks it. These bytes take half of the 1 MiB
// of L2 of Zen 4 and of server cores with AVX-512. Zen 2 and 3 have only 512 KiB of L2. But even there, lowering the
// limit to 192 KiB costs 2 % of the speed at D 64 and 128, and 6 % at D 256.
constexpr int64_t kMaxColumnBytes = 512 << 10;

/// Returns whether kernels of the tile unit compute the sums of dK and dV.
bool MultipliesTiles(const AttentionProblem& problem, Isa isa) {
  return problem.dtype == DType::kBF16 && (isa == Isa::kAvx512Amx || isa == core::kAmxEmulated);
}

int64_t ColumnBytes(const AttentionProblem& problem, Isa isa, int64_t block_k) {
  const bool pairs =
      problem.dtype == DType::kBF16 && (Includes(isa, Isa::kAvx512Bf16) || Includes(isa, Isa::kNeonBf16));
  const int64_t factor = pairs ? kPairedBytes : kFloatBytes;
  return block_k * ((problem.d + problem.d_rope + problem.dv) * (factor + kFloatBytes) +
                    2 * factor * FullBlockQ(MultipliesTiles(problem, isa)));
}

int64_t ChooseBlockK(const AttentionProblem& problem, Isa isa) {
  int64_t block_k = kMaxColumnKeys;
  while (block_k > kMinBlockK && ColumnBytes(problem, isa, block_k) > kMaxColumnBytes) block_k /= 2;
  return block_k;
}

// Predicts the share of the workers' time that goes into matrix products. In this model all workers work on one
// (sequence, kv head) pair. If row groups add their columns in ascending order, each worker starts one row group after
// the previous worker. If row groups take columns from the last key to the first, all columns start at once. Then only
// the order of tiles limits the use: the tiles of a column, or of a row group, run one after the other.
double PredictedUse(const Sequence& sequence, int64_t group, const BackwardShape& shape, int64_t strip_rows,
                    int64_t workers) {
  const auto columns = static_cast<double>(CeilDiv(sequence.sk, shape.block_k));
  const auto row_groups = static_cast<double>(group * CeilDiv(sequence.sq, shape.block_q));
  const auto groups = static_cast<double>(shape.block_q / strip_rows * (shape.block_k / kKeyStep));
  const double products = groups / (groups + static_cast<double>(kTileOverheadGroups));
  if (ColumnsDescend(sequence.rule)) {
    const double kept = static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq})) /
                        (static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk));
    const double steps = kept * columns * row_groups / static_cast<double>(workers);
    return std::min(1.0, steps / std::max(columns, row_groups)) * products;
  }
  const double at_once = std::min(columns, static_cast<double>(workers));
  const double steps = columns * row_groups / at_once;
  return steps / (steps + at_once - 1) * at_once / static_cast<double>(workers) * products;
}

int64_t ChooseBlockQ(const AttentionProblem& problem, const Machine& machine, const BackwardInterleave& interleave,
                     int64_t block_k) {
  const int64_t strip = machine.strip_rows;
  const auto whole_strips = [strip](int64_t rows) { return std::max(rows / strip, int64_t{1}) * strip; };
  const Sequence* heaviest = nullptr;
  int64_t longest = 1, most_pairs = 0;
  for (const Sequence& sequence : problem.sequences) {
    longest = std::max(longest, sequence.sq);
    const int64_t pairs = sequence.rule.KeptPairs({0, sequence.sq});
    if (pairs <= most_pairs) continue;
    most_pairs = pairs;
    heaviest = &sequence;
  }
  const int64_t most_rows = std::min(whole_strips(FullBlockQ(MultipliesTiles(problem, machine.isa)) + strip - 1),
                                     core::RoundUp(longest, strip));
  if (heaviest == nullptr || interleave.band == 1) return most_rows;
  const double flops_per_row = BackwardFlopsPerPair(problem) * static_cast<double>(block_k);
  const auto use = [&](int64_t block_q) {
    return PredictedUse(*heaviest, problem.group(), {block_q, block_k, {}}, strip, interleave.band);
  };
  int64_t best = most_rows;
  for (const int64_t rows : {most_rows / 2, most_rows / 4}) {
    const int64_t block_q = whole_strips(rows);
    if (flops_per_row * static_cast<double>(block_q) < kMinTileFlops) break;
    if (use(block_q) > use(best)) best = block_q;
  }
  return best;
}

}  // namespace

BackwardShape ChooseBackwardShape(const AttentionProblem& problem, const Machine& machine,
                                  const BackwardInterleave& interleave) {
  BackwardShape shape;
  shape.block_k = ChooseBlockK(problem, machine.isa);
  shape.block_q = ChooseBlockQ(problem, machine, interleave, shape.block_k);
  assert(shape.block_q < FullBlockQ(MultipliesTiles(problem, machine.isa)) + machine.strip_rows);

  std::array<char, 200> reason{};
  std::snprintf(reason.data(), reason.size(),
                "K, V, dK and dV of %lld keys with P and dS of a tile take %lld KiB of L2; "
                "bands of %lld columns of %lld heads at once for %d workers",
                static_cast<long long>(shape.block_k),
                static_cast<long long>(ColumnBytes(problem, machine.isa, shape.block_k) >> 10),
                static_cast<long long>(interleave.band), static_cast<long long>(interleave.pairs), machine.workers);
  shape.reason = reason.data();
  return shape;
}

}  // namespace fa::tiling
