// Finds the lengths that need the most workspace. In packed layouts, sequences share a total of rows, and perhaps of
// keys. Then two calls bound the buffers. In one call, a single sequence has all rows and keys, which makes the largest
// tensors. In the other, every sequence has somewhat more than an equal share, which makes the most tiles.
// With AttentionProblem::tile_eighths, the buffers of a plan are as large as any shorter sequences would need.
#include <algorithm>

#include "core/integer.h"
#include "core/saturating.h"
#include "layout/bind_layout.h"
#include "ops/inference/bind_infer.h"
#include "tiling/forward/key_cut.h"
#include "tiling/forward/make_forward_plan.h"
#include "tiling/plan_limits.h"
#include "tiling/row_rules.h"
#include "tiling/tile_shape.h"

namespace fa::ops {
namespace {

/// A sequence that shares rows or keys gets up to this many more than an equal share. No tile has more rows than this
/// number. No part of a sequence's keys, except the last part, has fewer keys than this number.
constexpr int64_t kMore = 512;
static_assert(kMore >= tiling::kMaxBlockQ);

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

struct Lengths {
  int64_t rows = 0, keys = 0;
};

/// Returns a call in which sequence 0 has the lengths `first`, and the others have `other`. The first `with.rows`
/// sequences have rows, and the first `with.keys` have keys.
BoundInfer WithLengths(const BoundInfer& bound, Lengths first, Lengths other, Lengths with, int64_t tile_eighths) {
  BoundInfer call = bound;
  BoundAttention& attention = call.decode.attention;
  attention.problem.tile_eighths = tile_eighths;
  std::vector<tiling::Sequence>& sequences = attention.problem.sequences;
  const bool tree = !call.tree.sequences.empty();
  int64_t bytes = 0;
  for (size_t b = 0; b < sequences.size(); ++b) {
    Lengths lengths = b == 0 ? first : other;
    if (static_cast<int64_t>(b) >= with.rows) lengths.rows = 0;
    if (static_cast<int64_t>(b) >= with.keys) lengths.keys = 0;
    sequences[b] = tiling::Sequence();
    sequences[b].sq = lengths.rows;
    sequences[b].sk = lengths.keys;
    // With left padding, a sequence's length decides where its mask begins. Sequences of different lengths have
    // different masks, which need more memory than one shared mask. So each sequence gets a mask of its own here.
    const bool apart = attention.has_dense_mask && call.absolute_mask;
    if (apart) attention.dense_mask.sequences[b].offset = static_cast<int64_t>(b);
    const int64_t row = std::max<int64_t>(lengths.keys, 1);
    if (tree) attention.dense_mask.sequences[b] = {.offset = bytes, .head = 0, .row = row};
    bytes = core::SaturatedSum(bytes, std::max<int64_t>(core::SaturatedProduct(lengths.rows, lengths.keys), 1));
  }
  tiling::SetRowRules(Mask::None(), sequences);
  if (tree) call.tree.bytes = static_cast<size_t>(bytes);
  return call;
}

/// Returns how many of `all` rows or keys each of `sequences` sequences gets.
int64_t Share(int64_t all, int64_t sequences) { return std::min(all, core::CeilDiv(all, sequences) + kMore); }

/// Sets slots_then and states_then for the case in which as many sequences as possible are cut into two parts. The keys
/// of these sequences are not packed.
void SetShares(const Lengths& most, int64_t sequences, LargestCalls& calls) {
  const std::vector<tiling::Sequence>& shared = calls.of_tiles[0][0].decode.attention.problem.sequences;
  double parts = 0;
  for (const tiling::Sequence& sequence : shared) {
    const int64_t own = tiling::MostParts(sequence.sk);
    if (own > 1) parts += static_cast<double>(own);
  }
  // A sequence of two parts has at least this many keys. Longer sequences have fewer parts per key.
  constexpr int64_t kTwoParts = 513;
  static_assert(kTwoParts == kMore + 1);
  const int64_t cut = std::min(std::min(sequences, most.rows), most.keys / kTwoParts);
  if (cut == 0 || parts == 0) return;
  const double keys = static_cast<double>(most.keys), left = keys - static_cast<double>(cut * kTwoParts);
  calls.slots_then = std::min(1.0, (left + 2 * tiling::kKeyStep) / keys);
  calls.states_then = std::min(1.0, 2 * static_cast<double>(cut) / parts);
}

}  // namespace

LargestCalls LargestCallsOf(const BoundInfer& bound, const InferAttentionArgs& args, int64_t strip_rows) {
  const tiling::AttentionProblem& problem = bound.decode.attention.problem;
  const auto sequences = std::max<int64_t>(std::ssize(problem.sequences), 1);
  const bool packed = layout::IsPacked(bound.options.layout);
  const Lengths most{bound.q_rows, MostKeys(bound, args)};
  const bool packed_keys = packed && !bound.decode.storage.paged();
  // At most most.rows sequences have a row. At most most.keys / kMore sequences have packed keys in several parts.
  const int64_t with_rows = packed ? std::clamp<int64_t>(most.rows, 1, sequences) : sequences;
  const Lengths with{with_rows, packed_keys ? std::clamp<int64_t>(most.keys / kMore, 1, with_rows) : sequences};
  const Lengths shared{packed ? Share(most.rows, sequences) : most.rows,
                       packed_keys ? Share(most.keys, with.keys) : most.keys};
  const int64_t fewest = tiling::FewestPackedRows(problem, strip_rows);
  LargestCalls largest;
  for (const int64_t eighths : {8, 6, 4, 2, 1}) {
    std::vector<BoundInfer>& calls = largest.of_tiles.emplace_back();
    calls.reserve(2);
    BoundInfer& call = calls.emplace_back(WithLengths(bound, shared, shared, with, eighths));
    if (!packed) continue;
    // The call `one` has the largest masks and trees. A mask is as large as the longest sequence, and all trees
    // together are no larger than one tree of all rows.
    call.decode.attention.has_dense_mask = false;
    call.tree = {};
    BoundInfer& one = calls.emplace_back(WithLengths(bound, most, {}, {sequences, sequences}, eighths));
    // Next to the longest sequence, further sequences with enough rows may have heads whose keys are packed.
    if (packed_keys && !problem.sequences.empty()) {
      const auto count = static_cast<size_t>(std::clamp<int64_t>(most.rows / fewest, 1, sequences));
      one.decode.attention.problem.sequences.resize(count);
    }
  }
  if (packed_keys && tiling::kDecodeRows < fewest) SetShares(most, sequences, largest);
  return largest;
}

}  // namespace fa::ops
