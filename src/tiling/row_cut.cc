#include "tiling/row_cut.h"

#include <algorithm>

#include "core/integer.h"
#include "core/saturating.h"

namespace fa::tiling {
namespace {

using core::CeilDiv;

// The cost of a strip without its products, relative to the cost of one key. A strip transposes Q and O, and keeps row
// statistics. The two transposes move 2 * D elements per row, which costs about as much as the multiply-adds of 16
// keys. The number matters only for strips with few keys.
constexpr int64_t kStripOverheadKeys = 16;

}  // namespace

RowCut CutRows(int64_t sq, int64_t group, int64_t block_q, int64_t strip_rows) {
  // If one head fills at least two strips, folding gains nothing and scatters the rows of Q and O. With fewer strips,
  // folding pays if at least two heads fit into one tile.
  if (group > 1 && sq < 2 * strip_rows && 2 * sq <= block_q) {
    const int64_t chunks = CeilDiv(group, std::min(group, block_q / sq));
    const int64_t heads = CeilDiv(group, chunks);
    return {.heads = heads, .head_chunks = CeilDiv(group, heads), .rows = sq, .row_blocks = 1};
  }
  const int64_t even_rows = CeilDiv(sq, CeilDiv(sq, block_q));
  const int64_t rows = std::min(sq, core::RoundUp(even_rows, strip_rows));
  return {.heads = 1, .head_chunks = group, .rows = rows, .row_blocks = CeilDiv(sq, rows)};
}

TileWork MeasureTile(const RowRule& rule, Interval rows, int64_t heads, int64_t strip_rows, int64_t block_k) {
  TileWork work{.keys = rule.KeysOfRows(rows)};
  const int64_t folded_rows = rows.size() * heads;
  for (int64_t folded = 0; folded < folded_rows; folded += strip_rows) {
    const int64_t folded_end = std::min(folded + strip_rows, folded_rows);
    const Interval keys = rule.KeysOfRows({rows.begin + folded / heads, rows.begin + CeilDiv(folded_end, heads)});
    work.weight = core::SaturatedSum(work.weight, kStripOverheadKeys);
    if (keys.empty()) continue;
    const int64_t key_begin = keys.begin / kKeyStep * kKeyStep;
    const int64_t key_end = std::min(core::RoundUp(keys.end, kKeyStep), rule.sk);
    work.blocks += CeilDiv(keys.end, block_k) - keys.begin / block_k;
    work.pairs += static_cast<double>(folded_end - folded) * static_cast<double>(key_end - key_begin);
    work.weight = core::SaturatedSum(work.weight, key_end - key_begin);
  }
  return work;
}

}  // namespace fa::tiling
