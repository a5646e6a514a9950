#include "ops/indexer/block_score_step.h"

#include <algorithm>
#include <limits>

#include "core/integer.h"

namespace fa::ops {
namespace {

// The scores of blocks that are always selected. vLLM's plugin for Ascend has the same scores, which are above all
// inner products that occur in models.
constexpr float kInitScore = 1e30F, kLocalScore = 1e29F;
constexpr float kNoKeyScore = -std::numeric_limits<float>::infinity();

}  // namespace

int64_t BlockScoreStep::OwnBlock(const SparseToken& token) const {
  const auto b = static_cast<size_t>(token.sequence);
  if (!problem_.start_loc.empty()) return problem_.start_loc[b];
  const SparseSequence& sequence = problem_.shape.sequences.list[b];
  return (std::max<int64_t>(sequence.sk - sequence.sq, 0) + token.row) / problem_.shape.score_block;
}

void BlockScoreStep::operator()(const SparseToken& token, float* scores, std::byte* /*scratch*/) const {
  const SparseSequences& sequences = problem_.shape.sequences;
  const auto b = static_cast<size_t>(token.sequence);
  const int64_t size = problem_.shape.score_block;
  const int64_t blocks = core::CeilDiv(sequences.list[b].sk, size);
  const int64_t seen = core::CeilDiv(sequences.Limit(token), size);
  const int64_t init = std::min(problem_.init_blocks, blocks);
  const int64_t loc = OwnBlock(token);
  const int64_t local_end = std::min(loc + 1, blocks);
  // The first local block is block 0 at the earliest. `loc + 1 - local_blocks` could overflow, so local_blocks is
  // bounded before the subtraction.
  const int64_t local_begin = loc + 1 - std::min(problem_.local_blocks, loc + 1);
  for (int64_t head = 0; head < problem_.shape.heads; ++head, scores += problem_.shape.BlocksPerHead()) {
    float* out = Row(head, sequences.Row(token));
    // Adding 0 turns -0 into +0. If products are +0 and -0, the sign of their maximum depends on their order.
    for (int64_t c = 0; c < seen; ++c) out[c] = scores[c] + 0.0F;
    std::fill(out + seen, out + problem_.columns, kNoKeyScore);
    std::fill(out, out + init, kInitScore);
    if (local_begin < local_end) std::fill(out + local_begin, out + local_end, kLocalScore);
  }
}

void BlockScoreStep::WriteUnusedRows(std::byte* /*scratch*/) const {
  problem_.shape.sequences.ForUnusedQueries([&](int64_t /*batch*/, tiling::Interval rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t head = 0; head < problem_.shape.heads; ++head) {
        std::fill_n(Row(head, row), problem_.columns, kNoKeyScore);
      }
    }
  });
}

}  // namespace fa::ops
