#include "ops/dense/mask_words.h"

#include <algorithm>
#include <cstring>

#include "core/integer.h"
#include "ops/tile/lane_array.h"

namespace fa::ops {
namespace {

constexpr int64_t kWordBits = 64;
/// The fewest rows of a sequence for which words are made. With fewer rows, the only tile reads each byte of the mask
/// once.
constexpr int64_t kLeastRows = 32;
/// The rows per task. A task takes some 10 us per 1000 keys.
constexpr int64_t kRowsOfTask = 64;

/// Returns a word with bit j set where byte j of `bytes` is not 0.
uint64_t WordOf(const uint8_t* bytes, int64_t count) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  uint64_t word = 0;
  for (int64_t j = 0; j < count; j += 8) {
    uint64_t eight = 0;
    if (count - j >= 8) {
      std::memcpy(&eight, bytes + j, 8);
    } else {
      std::memcpy(&eight, bytes + j, static_cast<size_t>(count - j));
    }
    const uint64_t high = (((eight & kLow) + kLow) | eight) & ~kLow;  // the high bit of every byte that is not 0
    word |= ((high >> 7) * 0x0102040810204080 >> 56) << j;
  }
  return word;
}

}  // namespace

MaskWords::MaskWords(const BoundAttention& bound, int workers) {
  const std::vector<tiling::Sequence>& sequences = bound.problem.sequences;
  int64_t most_rows = 0;
  for (const tiling::Sequence& sequence : sequences) most_rows = std::max(most_rows, sequence.sq);
  if (!bound.has_dense_mask || bound.dense_mask.dtype == DType::kI64 || most_rows < kLeastRows) return;
  layout_.dtype = DType::kI64;
  const std::vector<PairRows::PerSequence>& bytes = bound.dense_mask.sequences;
  int64_t rows = 0, words = 0;
  for (size_t b = 0; b < bytes.size(); ++b) {
    // Sequences that share a mask share its words; with TND all sequences do. The first sequence makes the words, as
    // many as the longest one needs.
    const auto same = [&](const PairRows::PerSequence& x) { return x.offset == bytes[b].offset; };
    const auto before = std::find_if(bytes.begin(), bytes.begin() + static_cast<int64_t>(b), same) - bytes.begin();
    if (before < static_cast<int64_t>(b)) {
      layout_.sequences.push_back(layout_.sequences[static_cast<size_t>(before)]);
      continue;
    }
    int64_t sq = 0, sk = 0;
    const tiling::RowRule* rule = &sequences[b].rule;
    for (size_t other = b; other < bytes.size(); ++other) {
      if (!same(bytes[other])) continue;
      if (sequences[other].rule != sequences[b].rule) rule = nullptr;
      sq = std::max(sq, sequences[other].sq);
      sk = std::max(sk, sequences[other].sk);
    }
    const int64_t heads = bytes[b].head == 0 ? 1 : bound.problem.heads, own_rows = bytes[b].row == 0 ? 1 : sq;
    const int64_t per_row = core::CeilDiv(sk, kWordBits);
    layout_.sequences.push_back(
        {.offset = words, .head = heads == 1 ? 0 : own_rows * per_row, .row = own_rows == 1 ? 0 : per_row});
    for (int64_t n = 0; n < heads; ++n) {
      planes_.push_back({bytes[b].offset + n * bytes[b].head, bytes[b].row, sk, rows, words, per_row, rule});
      rows += own_rows;
      words += own_rows * per_row;
    }
  }
  words_ = static_cast<size_t>(words);
  plan_ = tiling::MakeRowsPlan(rows, kRowsOfTask, workers);
}

tiling::Interval MaskWords::KeysRead(const Plane& plane, int64_t row) {
  if (plane.rule == nullptr) return {0, plane.keys};
  if (plane.stride == 0) return plane.rule->KeysOfRows({0, plane.rule->sq});
  // A strip with this row has at most kMaxStripWidth rows, and reads the keys that some of them keeps.
  return plane.rule->KeysOfRows(
      {std::max<int64_t>(row - kMaxStripWidth + 1, 0), std::min(row + kMaxStripWidth, plane.rule->sq)});
}

Status MaskWords::Make(const GraphRunner& runner, std::byte* workspace, ScoreInputs* scores) const {
  if (plan_.rows == 0) return Status::Ok();
  const auto* bytes = reinterpret_cast<const uint8_t*>(scores->dense_mask.data);
  auto* words = reinterpret_cast<uint64_t*>(workspace + words_at_);
  auto make = [&](int32_t task, int /*worker*/) {
    const tiling::Interval rows = plan_.RowsOf(task);
    const auto after = [](int64_t row, const Plane& plane) { return row < plane.first_row; };
    auto plane = std::upper_bound(planes_.begin(), planes_.end(), rows.begin, after) - 1;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      while (plane + 1 != planes_.end() && row >= plane[1].first_row) ++plane;
      const int64_t row_of_plane = row - plane->first_row;
      const uint8_t* from = bytes + plane->from + row_of_plane * plane->stride;
      uint64_t* to = words + plane->first_word + row_of_plane * plane->words;
      const tiling::Interval keys = KeysRead(*plane, row_of_plane);
      for (int64_t w = keys.begin / kWordBits; w * kWordBits < keys.end; ++w) {
        to[w] = WordOf(from + w * kWordBits, std::min(kWordBits, plane->keys - w * kWordBits));
      }
    }
  };
  FA_RETURN_IF_ERROR(runner.RunGraph(plan_.graph, core::TaskFunction(make), workspace + state_at_));
  scores->dense_mask = {reinterpret_cast<const std::byte*>(words), &layout_};
  return Status::Ok();
}

}  // namespace fa::ops
