#include "ops/tile/tile_fetch.h"

#include <algorithm>

#include "core/integer.h"

namespace fa::ops {
namespace {

/// Returns the number of cache lines that `rows` rows of a head take, if the rows begin at the start of a line.
int64_t LinesOf(const layout::RowsView& tensor, int64_t columns, int64_t rows) {
  const int64_t row_bytes = columns * static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  if (tensor.rows.row == columns) return core::CeilDiv(rows * row_bytes, FetchRuns::kLineBytes);
  return rows * core::CeilDiv(row_bytes, FetchRuns::kLineBytes);
}

}  // namespace

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
  const struct {
    const layout::RowsView& tensor;
    int64_t columns, head;
    tiling::Interval range;
  } parts[] = {{rows.q, problem.d, next.head, queries},      {rows.q_rope, problem.d_rope, next.head, queries},
               {rows.d_out, problem.dv, next.head, queries}, {rows.out, problem.dv, next.head, queries},
               {rows.k, problem.d, next.head_kv, keys},      {rows.k_rope, problem.d_rope, next.head_kv, keys},
               {rows.v, problem.dv, next.head_kv, keys}};
  int64_t lines = 0;
  for (const auto& part : parts) lines += LinesOf(part.tensor, part.columns, part.range.size());
  if (lines * FetchRuns::kLineBytes > most_bytes) return;
  for (const auto& part : parts) Add(part.tensor, part.columns, next.sequence, part.head, 1, part.range);
}

void TileFetch::Add(const layout::RowsView& tensor, int64_t columns, int64_t batch, int64_t head, int64_t heads,
                    tiling::Interval range) {
  if (columns == 0 || range.empty()) return;
  const auto element = static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  for (int64_t n = head; n < head + heads; ++n) {
    runs_.AddRows(tensor.At(batch, n, range.begin), range.size(), columns * element, tensor.rows.row * element);
  }
}

}  // namespace fa::ops
