#include "ops/dense/mask_tiles.h"

#include <algorithm>

#include "core/integer.h"
#include "ops/tile/lane_array.h"

namespace fa::ops {
namespace {

using tiling::Interval;

/// The fewest rows of a sequence for which tiles are made. With fewer rows, the only tile of the call reads each byte
/// of the mask once.
constexpr int64_t kLeastRows = 32;

}  // namespace

MaskTiles::MaskTiles(const BoundAttention& bound, int workers) {
  const std::vector<tiling::Sequence>& sequences = bound.problem.sequences;
  int64_t most_rows = 0;
  for (const tiling::Sequence& sequence : sequences) most_rows = std::max(most_rows, sequence.sq);
  if (!bound.has_dense_mask || most_rows < kLeastRows) return;
  const std::vector<PairRows::PerSequence>& bytes = bound.dense_mask.sequences;
  // The masks of all sequences have the same strides, so those of sequence 0 tell whether heads or rows share the mask.
  layout_.one_row = bytes[0].row == 0;
  layout_.rows = layout_.one_row ? 1 : most_rows;
  for (const tiling::Sequence& sequence : sequences) layout_.keys = std::max(layout_.keys, sequence.sk);
  layout_.heads_per_plane = bytes[0].head == 0 ? bound.problem.heads : 1;
  for (size_t b = 0; b < bytes.size(); ++b) AddPlanes(bound, b);
  plan_ = tiling::MakeRowsPlan(static_cast<int64_t>(tile_rows()), 1, workers);
}

/// Sequences that share a mask share its planes. With TND, all sequences share one mask. A plane has only the rows and
/// keys that the longest of its sequences reads. Nothing beyond these may be read: with left padding or trees of
/// drafts, the memory of the mask may end there.
void MaskTiles::AddPlanes(const BoundAttention& bound, size_t b) {
  const std::vector<PairRows::PerSequence>& bytes = bound.dense_mask.sequences;
  const auto same = [&](const PairRows::PerSequence& x) { return x.offset == bytes[b].offset; };
  const auto first = static_cast<size_t>(std::find_if(bytes.begin(), bytes.end(), same) - bytes.begin());
  if (first < b) {
    layout_.plane.push_back(layout_.plane[first]);
    return;
  }
  const std::vector<tiling::Sequence>& sequences = bound.problem.sequences;
  const tiling::RowRule* rule = &sequences[b].rule;
  int64_t rows = 0, keys = 0;
  for (size_t other = b; other < bytes.size(); ++other) {
    if (!same(bytes[other])) continue;
    if (sequences[other].rule != sequences[b].rule) rule = nullptr;
    if (sequences[other].sq == 0 || sequences[other].sk == 0) continue;
    rows = std::max(rows, sequences[other].sq);
    keys = std::max(keys, sequences[other].sk);
  }
  if (layout_.one_row) rows = std::min<int64_t>(rows, 1);
  layout_.plane.push_back(static_cast<int64_t>(planes_.size()));
  for (int64_t n = 0; n < bound.problem.heads; n += layout_.heads_per_plane) {
    planes_.push_back({bytes[b].offset + n * bytes[b].head, bytes[b].row, rows, keys, rule, words_});
    words_ += static_cast<size_t>(rows * words_of_row());
  }
}

Interval MaskTiles::KeysRead(const Plane& plane, Interval rows) const {
  if (plane.rule == nullptr) return {0, plane.keys};
  if (layout_.one_row) return plane.rule->KeysOfRows({0, plane.rule->sq});
  if (rows.begin >= plane.rule->sq) return {};
  // A strip with one of these rows has at most kMaxStripWidth rows, and reads the keys that at least one of its rows
  // keeps.
  return plane.rule->KeysOfRows(
      {std::max<int64_t>(rows.begin - kMaxStripWidth + 1, 0), std::min(rows.end - 1 + kMaxStripWidth, plane.rule->sq)});
}

void MaskTiles::MakeTileRow(int64_t number, const uint8_t* bytes, std::byte* workspace) const {
  constexpr int64_t kTile = PairTileLayout::kTile, kWordBits = PairTileLayout::kWordBits;
  const Plane& plane = planes_[static_cast<size_t>(number / layout_.tile_rows())];
  const int64_t first = number % layout_.tile_rows() * kTile, stride = words_of_row();
  const Interval rows{first, std::min(first + kTile, plane.rows)};
  if (rows.empty()) return;
  const Interval read = KeysRead(plane, rows);
  auto* words = reinterpret_cast<uint64_t*>(workspace + words_at_) + plane.words + first * stride;
  auto* kinds = reinterpret_cast<uint8_t*>(workspace + kinds_at_) + number * layout_.tiles_of_row();
  auto* groups = reinterpret_cast<PairTiles::Group*>(workspace + groups_at_) + number * layout_.groups_of_row();
  for (int64_t g = 0; g < layout_.groups_of_row(); ++g) groups[g] = {words + g * PairTileLayout::kGroupWords, stride};
  const Interval keys{read.begin / kTile * kTile, std::min(core::RoundUp(read.end, kTile), plane.keys)};
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const uint8_t* from = bytes + plane.from + row * plane.stride;
    uint64_t* to = words + (row - first) * stride;
    for (int64_t key = keys.begin; key < keys.end; key += kWordBits) {
      to[key / kWordBits] = WordOfBytes(from + key, std::min(kWordBits, keys.end - key));
    }
  }
  FindKinds(words + keys.begin / kWordBits, stride, rows.size(), keys.size(), kinds + keys.begin / kTile);
  for (int64_t tile = keys.begin / kTile; tile * kTile < keys.end; ++tile) {
    const int64_t place = tile % PairTileLayout::kGroupTiles;
    kinds[tile] = static_cast<uint8_t>(kinds[tile] | place << PairTiles::kPlaceShift);
  }
}

Status MaskTiles::Make(const GraphRunner& runner, std::byte* workspace, ScoreInputs* scores) const {
  if (plan_.rows == 0) return Status::Ok();
  const auto* bytes = reinterpret_cast<const uint8_t*>(scores->dense_mask.data);
  auto make = [&](int32_t task, int /*worker*/) {
    const Interval tile_rows = plan_.RowsOf(task);
    for (int64_t number = tile_rows.begin; number < tile_rows.end; ++number) MakeTileRow(number, bytes, workspace);
  };
  FA_RETURN_IF_ERROR(runner.RunGraph(plan_.graph, core::TaskFunction(make), workspace + state_at_));
  scores->dense_mask = {};
  scores->mask_tiles = {reinterpret_cast<const uint8_t*>(workspace + kinds_at_),
                        reinterpret_cast<const PairTiles::Group*>(workspace + groups_at_), &layout_, /*row_shift=*/0};
  return Status::Ok();
}

}  // namespace fa::ops
