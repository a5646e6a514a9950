// The lengths that need the most workspace. A sequence with few rows has states of the parts of its keys, and as many
// parts as its number of keys allows. A sequence with many rows has packed keys and more tiles. Every buffer of a plan
// grows with the rows and keys of each sequence, apart from these two cases, and with the number of parts. The rows of
// a tile, which follow the balance of lengths, are all that the planner may choose.
#include <algorithm>
#include <array>

#include "core/integer.h"
#include "layout/bind_layout.h"
#include "ops/inference/bind_infer.h"
#include "tiling/forward/key_cut.h"
#include "tiling/plan_limits.h"
#include "tiling/row_rules.h"

namespace fa::ops {
namespace {

/// More rows than the tiles of a head need to share packed keys, whatever the kernels.
constexpr int64_t kManyRows = 512;

/// Returns the most keys that a sequence can have.
int64_t MostKeys(const BoundInfer& bound, const InferAttentionArgs& args) {
  const int seq = layout::AxesOf(bound.options.layout).seq;
  int64_t rows = 0;
  if (bound.decode.storage.paged()) {
    rows = args.block_table.shape[1] * bound.decode.storage.table.page_rows;
  } else {
    for (const TensorView& k : args.k) rows = std::max(rows, k.shape[seq]);
  }
  return std::min(bound.prefix_rows + rows, tiling::kMostKeys);
}

/// Returns the number of keys, at most `most`, that is cut into the most parts. Parts of a long sequence grow in steps,
/// so a few more keys may mean fewer parts.
int64_t KeysOfMostParts(int64_t most) {
  constexpr int64_t kStep = 8192;  // the fewest keys from which on one part more or less matters
  const auto parts = [](int64_t keys) { return core::CeilDiv(keys, tiling::KeysOfAPart(1, keys)); };
  const int64_t whole = most / kStep * kStep;
  return whole > 0 && parts(whole) > parts(most) ? whole : most;
}

BoundInfer WithLengths(const BoundInfer& bound, int64_t rows, int64_t keys, int64_t tile_eighths) {
  BoundInfer call = bound;
  BoundAttention& attention = call.decode.attention;
  attention.problem.tile_eighths = tile_eighths;
  for (tiling::Sequence& sequence : attention.problem.sequences) {
    sequence = tiling::Sequence();
    sequence.sq = rows;
    sequence.sk = keys;
  }
  tiling::SetRowRules(Mask::None(), attention.problem.sequences);
  const auto sequences = static_cast<int64_t>(attention.problem.sequences.size());
  if (!call.tree.sequences.empty()) call.tree.bytes = static_cast<size_t>(sequences * rows * keys);
  if (call.tree.sequences.empty()) return call;
  // The dense masks of a tree are as large as these lengths make them.
  for (int64_t b = 0; b < sequences; ++b) {
    attention.dense_mask.sequences[static_cast<size_t>(b)] = {.offset = b * rows * keys, .head = 0, .row = keys};
  }
  return call;
}

}  // namespace

std::vector<BoundInfer> LargestCalls(const BoundInfer& bound, const InferAttentionArgs& args) {
  const auto sequences = static_cast<int64_t>(bound.decode.attention.problem.sequences.size());
  int64_t most_rows = bound.q_rows;
  if (layout::IsPacked(bound.options.layout) && sequences > 0) {
    most_rows = std::min(bound.q_rows, core::CeilDiv(bound.q_rows, sequences) + kManyRows);
  }
  const int64_t few_rows = std::min(bound.q_rows, tiling::kDecodeRows);
  const int64_t most_keys = MostKeys(bound, args);
  std::vector<BoundInfer> calls;
  for (const int64_t rows : std::array{std::min<int64_t>(bound.q_rows, 1), few_rows, most_rows}) {
    for (const int64_t keys : std::array{most_keys, KeysOfMostParts(most_keys)}) {
      for (const int64_t eighths : {8, 6, 4, 2, 1}) calls.push_back(WithLengths(bound, rows, keys, eighths));
    }
  }
  return calls;
}

}  // namespace fa::ops
