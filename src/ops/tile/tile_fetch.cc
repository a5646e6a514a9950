#include "ops/tile/tile_fetch.h"

#include <algorithm>

namespace fa::ops {

void TileFetch::List(const tiling::AttentionProblem& problem, const ForwardRows& rows, int64_t block_k,
                     const tiling::ForwardItem& item, const tiling::ForwardItem* next) {
  const auto& sequence = problem.sequences[static_cast<size_t>(item.sequence)];
  Add(rows.out, problem.dv, item.sequence, item.head_begin, item.heads,
      {sequence.q_offset + item.row_begin, sequence.q_offset + item.row_end});
  if (next == nullptr) return;
  const auto& after = problem.sequences[static_cast<size_t>(next->sequence)];
  if (next->sequence != item.sequence || next->head_kv != item.head_kv) {
    const int64_t keys_end = std::min(next->keys.end, next->keys.begin + block_k);
    const tiling::Interval keys{after.k_offset + next->keys.begin, after.k_offset + keys_end};
    Add(rows.k.view, problem.d, next->sequence, next->head_kv, 1, keys);
    Add(rows.v.view, problem.dv, next->sequence, next->head_kv, 1, keys);
  }
  Add(rows.q, problem.d, next->sequence, next->head_begin, next->heads,
      {after.q_offset + next->row_begin, after.q_offset + next->row_end});
}

void TileFetch::List(const tiling::AttentionProblem& problem, const GradRows& rows, const tiling::BackwardItem& item,
                     const tiling::BackwardItem& next, int64_t most_bytes) {
  const auto& after = problem.sequences[static_cast<size_t>(next.sequence)];
  const tiling::Interval queries{after.q_offset + next.row_begin, after.q_offset + next.row_end};
  const bool same_keys =
      next.sequence == item.sequence && next.head_kv == item.head_kv && next.key_begin == item.key_begin;
  const tiling::Interval keys{after.k_offset + next.key_begin,
                              after.k_offset + (same_keys ? next.key_begin : next.key_end)};
  const int64_t elements = queries.size() * (problem.d + 2 * problem.dv) + keys.size() * (problem.d + problem.dv);
  if (elements * static_cast<int64_t>(SizeOf(rows.q.rows.dtype)) > most_bytes) return;
  Add(rows.q, problem.d, next.sequence, next.head, 1, queries);
  Add(rows.d_out, problem.dv, next.sequence, next.head, 1, queries);
  Add(rows.out, problem.dv, next.sequence, next.head, 1, queries);
  if (same_keys) return;
  Add(rows.k, problem.d, next.sequence, next.head_kv, 1, keys);
  Add(rows.v, problem.dv, next.sequence, next.head_kv, 1, keys);
}

void TileFetch::Add(const layout::RowsView& tensor, int64_t columns, int64_t batch, int64_t head, int64_t heads,
                    tiling::Interval range) {
  const auto element = static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  for (int64_t n = head; n < head + heads; ++n) {
    const std::byte* first = tensor.At(batch, n, range.begin);
    if (tensor.rows.row == columns) {
      if (room_-- <= 0) return;
      runs_.Add(first, range.size() * columns * element);
      continue;
    }
    for (int64_t row = range.begin; row < range.end; ++row, first += tensor.rows.row * element) {
      if (room_-- <= 0) return;
      runs_.Add(first, columns * element);
    }
  }
}

}  // namespace fa::ops
