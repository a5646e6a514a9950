#include "tiling/backward_shape.h"

#include <algorithm>

namespace fa::tiling {
namespace {

constexpr int64_t kFloatBytes = 4;  // 16-bit rows are widened to f32 panels before they are multiplied

// Four strips of 32 rows: K, V, dK and dV of a column are read from L2 once for all of them, and the sums over rows
// (dK, dV) run over four strips before they are stored.
constexpr int64_t kMaxBlockQ = 128;

// More keys do not pay for themselves: dQ is loaded and stored once per 128 keys, and the tiles of P and dS leave L2.
constexpr int64_t kMaxBlockK = 128;
constexpr int64_t kMinBlockK = 32;

// What a column keeps in L2 while it walks: K, V, dK, dV and a tile's P and dS. avx512: a half of the 1 MiB that every
// such server core and Zen 4 have. avx2 and portable: three quarters of the 256 KiB of Haswell to Coffee Lake, less
// than a half of Zen's 512 KiB.
int64_t ColumnBytes(Isa isa) { return isa >= Isa::kAvx512 ? 512 << 10 : 192 << 10; }

}  // namespace

int64_t ChooseBackwardBlockK(const AttentionProblem& problem, Isa isa) {
  const int64_t key_bytes = 2 * kFloatBytes * (problem.d + problem.d_rope + problem.dv + kMaxBlockQ);
  int64_t block_k = kMaxBlockK;
  while (block_k > kMinBlockK && block_k * key_bytes > ColumnBytes(isa)) block_k /= 2;
  return block_k;
}

int64_t ChooseBackwardBlockQ(const AttentionProblem& problem, const Machine& machine, int64_t /*block_k*/) {
  const int64_t strip = machine.strip_rows;
  int64_t longest = 1;
  for (const Sequence& sequence : problem.sequences) longest = std::max(longest, sequence.sq);
  const int64_t whole_strips = (longest + strip - 1) / strip * strip;
  return std::min(std::max(kMaxBlockQ / strip, int64_t{1}) * strip, whole_strips);
}

}  // namespace fa::tiling
