// One tile of the backward: a group of query rows against one column of keys, five products, in transposed form.
//
//   for each strip of queries (along the vector lanes):
//     S^T[key][q]  = K x Q^T panel, passes and masks                     as the forward
//     dP^T[key][q] = V (broadcast, natural rows) x dO^T panel
//     P^T = 2^(S^T - shift), dS^T = P^T (dP^T - delta)                   in registers
//     dQ^T[c][q]  += K^T (broadcast) x dS^T
//   over all strips at once:
//     dV[key][c]  += P^T (broadcast) x dO (panel of rows)
//     dK[key][c]  += dS^T (broadcast) x Q (panel of rows)
//
// dQ^T of a row group and dK, dV of a column live in f32 in the head's slot. The plan's edges give each of these sums a
// single writer at a time and one order of additions. So no bit depends on which worker runs which tile, or when. The
// first tile of a row group packs Q and dO in both forms, and the row statistics. The last tile of the row group writes
// dQ. In the same way, the first tile of a column prepares K and V, and the last one writes dK and dV. A product adds
// its terms one by one to the f32 sum in memory. So the bits do not depend on how rows and keys are cut into tiles.

#include "ops/dense/backward_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/integer.h"
#include "ops/dense/next_tile.h"
#include "ops/tile/grad_strip.h"

namespace fa::ops {
namespace {

using core::kernels::OuterArgs;
using core::kernels::StripKernels;
using core::kernels::TileAttendArgs;
using tiling::Interval;

bool AllFinite(const core::kernels::RowKernels& kernels, const core::kernels::RowBlock& rows, int64_t count,
               int64_t columns) {
  // If rows are paired, all rows of a group are contiguous and are checked at once. Rows that only fill up the last
  // group are finite.
  const int64_t step = rows.paired ? rows.group : 1, elements = step * columns;
  const int64_t bytes = step * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
  const auto* data = static_cast<const std::byte*>(rows.data);
  for (int64_t r = -rows.skip; r < count; r += step, data += bytes) {
    if (!kernels.all_finite(data, rows.dtype, elements)) return false;
  }
  return true;
}

}  // namespace

struct BackwardTile::Tile {
  const tiling::BackwardItem& item;
  const tiling::Sequence& sequence;
  BackwardSlot slot;
  BackwardScratch scratch;
  int64_t slot_row = 0;  ///< number of the item's row_begin in the slot
  Interval column;
  int64_t first_key = 0;  ///< the key with number 0 in the slot
  int64_t first_row = 0;  ///< row of `first_key` in dK and dV
  /// Whether this tile starts dK and dV of the column at 0, and whether it rounds them at the end.
  bool begins_sums, ends_sums;
  ColumnStrips strips = {};
  KeyRows keys = {};
  KeyRows keys_of_dq = {};  ///< the column's K for the product dS^T K
  /// Whether all values of the column's K are finite, and whether all values of the rows' Q and dO are finite. A masked
  /// pair multiplies these values by 0, which gives NaN for a value that is not finite. Each member is empty until a
  /// strip asks for it.
  std::optional<bool> keys_finite = {}, rows_finite = {};
  float* q = nullptr;  ///< panels of pack_rows with as many rows as the tile
  float* q_rope = nullptr;
  float* d_out = nullptr;
  /// The tile that the worker most likely takes next; null if unknown.
  const tiling::BackwardItem* next = nullptr;
  FetchRuns::Run runs[6] = {};  ///< the panels that the next tile reads
  core::kernels::FetchList fetch = {};
  int64_t fetch_lines = 0;  ///< how many lines `fetch` has

  [[nodiscard]] int64_t rows() const { return item.row_end - item.row_begin; }
  /// Returns the number of `key` in the slot.
  [[nodiscard]] int64_t SlotKey(int64_t key) const { return key - first_key; }
};

BackwardTile::BackwardTile(const tiling::AttentionProblem& problem, const tiling::BackwardPlan& plan,
                           const core::kernels::KernelTable& table, const GradRows& rows,
                           const BackwardBuffers& buffers, std::byte* workspace, const KeySums* sums)
    : problem_(problem),
      plan_(plan),
      table_(table),
      rows_(rows),
      buffers_(buffers),
      workspace_(workspace),
      sums_(sums),
      score_tile_(problem, table, rows.scores),
      gradient_tiles_(problem, score_tile_) {}

void BackwardTile::operator()(int32_t task, int worker) {
  // Tasks from items.size() on are joins, which do no work.
  if (task >= static_cast<int64_t>(plan_.items.size())) return;
  const tiling::BackwardItem& item = plan_.items[static_cast<size_t>(task)];
  const tiling::Sequence& sequence = problem_.sequences[static_cast<size_t>(item.sequence)];
  Tile tile{.item = item,
            .sequence = sequence,
            .slot = buffers_.Slot(workspace_, item.slot),
            .scratch = buffers_.Scratch(workspace_, worker),
            .column = {item.key_begin, item.key_end},
            .first_row = sequence.k_offset,
            .begins_sums = item.first_of_column,
            .ends_sums = item.last_of_column};
  tile.slot_row = SlotRow(item);
  if (sums_ != nullptr) {
    const KeySums& sums = sums_[item.key_sums];
    tile.slot.dk = sums.dk + item.head_kv * sums.dk_head;
    tile.slot.dv = sums.dv + item.head_kv * sums.dv_head;
    tile.slot.k = sums.k + item.head_kv * sums.k_head;
    tile.slot.v = sums.v + item.head_kv * sums.v_head;
    tile.first_key = sums.first_key;
    tile.first_row = sums.first_row;
    tile.begins_sums &= sums.begin;
    tile.ends_sums &= sums.end;
  }
  tile.next = NextTile(plan_, task);
  if (tile.rows() > 0) OpenRows(tile);
  if (!tile.column.empty() && item.first_of_column) OpenColumn(tile);
  if (tile.rows() > 0 && !tile.column.empty()) Accumulate(tile);
  if (tile.rows() > 0 && item.last_of_rows) CloseRows(tile);
  if (!tile.column.empty() && tile.ends_sums) CloseColumn(tile);
}

/// Returns the number of the item's first row in its slot.
int64_t BackwardTile::SlotRow(const tiling::BackwardItem& item) const {
  const int64_t sq = problem_.sequences[static_cast<size_t>(item.sequence)].sq;
  const int64_t rows_per_head = core::RoundUp(sq, plan_.block_q);
  const int64_t first = plan_.slot_row_of.empty() ? 0 : plan_.slot_row_of[static_cast<size_t>(item.sequence)];
  const int64_t head = plan_.head_by_head ? 0 : item.head - item.head_kv * problem_.group();
  return first + head * rows_per_head + item.row_begin;
}

/// Makes the tile's strips. The first tile of a row group also packs its Q, dO and row statistics, which later tiles
/// read.
void BackwardTile::OpenRows(Tile& tile) const {
  const tiling::BackwardItem& item = tile.item;
  const int64_t columns = problem_.d + problem_.d_rope;
  const FoldedRows rows{item.sequence, item.head, 1, item.row_begin, item.row_end};
  const int64_t q_row = tile.sequence.q_offset + item.row_begin;
  const GradPanels panels{.q = tile.slot.q_panel + tile.slot_row * columns,
                          .d_out = tile.slot.do_panel + tile.slot_row * problem_.dv,
                          .dq = tile.slot.dq_panel + tile.slot_row * columns,
                          .shift = tile.slot.shift + tile.slot_row,
                          .delta = tile.slot.delta + tile.slot_row,
                          .tiles = tile.scratch.tiles,
                          .columns = columns,
                          .dv = problem_.dv,
                          .keys = plan_.block_k};
  CutGradStrips(problem_, table_, rows, panels, tile.strips,
                [&](ColumnStrip& strip) { strip.keys = score_tile_.KeptKeys(strip, tile.column); });
  tile.q = tile.slot.q + tile.slot_row * buffers_.PanelColumns(problem_.d);
  tile.q_rope = tile.slot.q_rope + tile.slot_row * buffers_.PanelColumns(problem_.d_rope);
  tile.d_out = tile.slot.d_out + tile.slot_row * buffers_.PanelColumns(problem_.dv);
  if (!item.first_of_rows) return;

  const GradInputs inputs = Inputs();
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    PackQueries(problem_, rows_.q, rows_.q_rope, score_tile_.passes().scale().q_multiplier, tile.strips[s]);
    OpenGradStrip(problem_, inputs, *table_.rows, tile.sequence.q_offset, tile.strips[s]);
    if (tile.strips[s].keys.empty()) ClearQueryGradients(problem_, tile.strips[s]);
  }
  const auto pack = [&](const layout::RowsView& tensor, int64_t columns_of_row, float* panel) {
    table_.rows->pack_rows(BlockAt(tensor, item.sequence, item.head, q_row), tile.rows(), columns_of_row, panel);
  };
  pack(rows_.q, problem_.d, tile.q);
  if (problem_.d_rope > 0) pack(rows_.q_rope, problem_.d_rope, tile.q_rope);
  pack(rows_.d_out, problem_.dv, tile.d_out);
  const int64_t row_base = (item.head * tile.sequence.sq) + item.row_begin;
  if (float* deltas = buffers_.RowDelta(workspace_); deltas != nullptr) {
    std::memcpy(deltas + buffers_.RowBase(item.sequence) + row_base, tile.slot.delta + tile.slot_row,
                sizeof(float) * static_cast<size_t>(tile.rows()));
  }
  if (float* slopes = buffers_.RowSlope(workspace_); slopes != nullptr) {
    std::fill_n(slopes + buffers_.RowBase(item.sequence) + row_base, tile.rows(), 0.0f);
  }
  if (has_dpse() && !rows_.dpse.where->adds()) {
    const layout::MutableRowsView dpse = rows_.dpse.Of(item.sequence);
    for (int64_t row = item.row_begin; row < item.row_end; ++row) dpse.Clear(0, item.head, row, tile.sequence.sk);
  }
}

/// Writes 0 to dK and dV of these keys.
void BackwardTile::ClearKeys(const Tile& tile, Interval keys) const {
  const auto clear = [&](float* sums, int64_t columns) {
    const KeyColumns where = SumsOfKeys(columns);
    const int64_t step = where.grouped() ? KeyColumns::kGroup : columns;  // columns that lie together
    for (int64_t c = 0; c < columns; c += step) {
      std::memset(sums + where.Offset(tile.SlotKey(keys.begin), c), 0,
                  sizeof(float) * static_cast<size_t>(keys.size() * step));
    }
  };
  clear(tile.slot.dk, problem_.d + problem_.d_rope);
  clear(tile.slot.dv, problem_.dv);
}

void BackwardTile::OpenColumn(const Tile& tile) const {
  const int64_t columns = problem_.d + problem_.d_rope, keys = tile.column.size();
  const int64_t begin = tile.SlotKey(tile.column.begin);
  if (tile.rows() == 0 && tile.begins_sums) ClearKeys(tile, tile.column);
  const int64_t row = tile.sequence.k_offset + tile.column.begin;
  const auto copy = [&](const layout::RowsView& tensor, int64_t width, float* to, int64_t stride) {
    (table_.pairs() ? table_.rows->pair_rows : table_.rows->widen)(
        BlockAt(tensor, tile.item.sequence, tile.item.head_kv, row), keys, width, to, stride);
  };
  if (buffers_.copies_k()) {
    float* to = tile.slot.k + buffers_.KeyOffset(begin);
    copy(rows_.k, problem_.d, to, columns);
    if (problem_.d_rope > 0) {
      const int64_t first = table_.pairs() ? table_.rows->PairedColumn(problem_.d) : problem_.d;
      copy(rows_.k_rope, problem_.d_rope, to + first, columns);
    }
  }
  if (buffers_.copies_v()) copy(rows_.v, problem_.dv, tile.slot.v + begin * problem_.dv, problem_.dv);
  if (!buffers_.loops()) return;
  float* copies = tile.slot.k + buffers_.KeyOffset(begin);
  const auto pack = [&](const layout::RowsView& tensor, int64_t width, float* to, int64_t of_row) {
    table_.rows->pack_key_tiles(BlockAt(tensor, tile.item.sequence, tile.item.head_kv, row), keys, width, to,
                                of_row * TileAttendArgs::kKeys / 2);
  };
  float* k = copies + buffers_.KeyTiles();
  pack(rows_.k, problem_.d, k, columns);
  if (problem_.d_rope > 0) pack(rows_.k_rope, problem_.d_rope, k + problem_.d * TileAttendArgs::kKeys / 2, columns);
  pack(rows_.v, problem_.dv, copies + buffers_.ValueTiles(), problem_.dv);
}

void BackwardTile::Accumulate(Tile& tile) const {
  BindKeys(tile);
  TileFetch rows;
  if (tile.next != nullptr) FetchNext(tile, rows);
  const bool loops = TakesLoop(tile);
  if (loops) LoopGradients(tile);
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    ColumnStrip& strip = tile.strips[s];
    if (strip.keys.empty() || (loops && strip.kernels->tile_loops != nullptr)) continue;
    StripGradients(tile, strip);
  }
  ColumnGradients(tile);
}

/// Returns whether the kernels' loop computes the tile's widest strips. The loop multiplies masked pairs by 0. If an
/// element of a masked pair is not finite, the other kernels compute the tile, with the same bits.
bool BackwardTile::TakesLoop(Tile& tile) const {
  if (!buffers_.loops()) return false;
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    if (gradient_tiles_.MayMeetMasked(tile.strips[s], tile.column)) return KeysFinite(tile) && QueryPanelsFinite(tile);
  }
  return true;
}

void BackwardTile::LoopGradients(Tile& tile) const {
  const float* copies = tile.slot.k + buffers_.KeyOffset(tile.SlotKey(tile.column.begin));
  const GradInputs inputs = Inputs();
  gradient_tiles_.Visit({.keys = tile.column,
                         .k_pairs = copies,
                         .k = copies + buffers_.KeyTiles(),
                         .v = copies + buffers_.ValueTiles(),
                         .inputs = inputs,
                         .q_offset = tile.sequence.q_offset,
                         .accumulate = !tile.item.first_of_rows,
                         .staging = tile.scratch.bias,
                         .memory = tile.scratch.loop,
                         .fetch = tile.fetch_lines > 0 ? &tile.fetch : nullptr,
                         .lines = tile.fetch_lines},
                        tile.strips);
}

/// Finds where K and V of the tile's column lie for each product.
void BackwardTile::BindKeys(Tile& tile) const {
  const int64_t columns = problem_.d + problem_.d_rope, begin = tile.column.begin;
  const int64_t row = tile.sequence.k_offset + begin;
  const auto in_place = [&](const layout::RowsView& tensor) {
    return BlockAt(tensor, tile.item.sequence, tile.item.head_kv, row);
  };
  KeyRows& keys = tile.keys;
  keys.first = tile.keys_of_dq.first = begin;
  const int64_t slot_key = tile.SlotKey(begin);
  const float* k = tile.slot.k + buffers_.KeyOffset(slot_key);
  keys.v = buffers_.copies_v() ? core::kernels::RowBlock{tile.slot.v + slot_key * problem_.dv, DType::kF32, problem_.dv}
                               : in_place(rows_.v);
  if (table_.pairs()) {
    keys.k = in_place(rows_.k);
    if (problem_.d_rope > 0) keys.k_rope = in_place(rows_.k_rope);
    tile.keys_of_dq.k = table_.rows->Paired(k, columns);
    return;
  }
  keys.k = buffers_.copies_k() ? core::kernels::RowBlock{k, DType::kF32, columns} : in_place(rows_.k);
  keys.k_rope = {k + problem_.d, DType::kF32, columns};
  tile.keys_of_dq.k = keys.k;
}

/// Lets the products prefetch what the next tile reads.
/// @param rows  receives the list of rows that the next tile packs; `rows` must live until the products are done
void BackwardTile::FetchNext(Tile& tile, TileFetch& rows) const {
  constexpr int64_t kMostBytes = int64_t{192} << 10;  // more would drive this tile's data out of L2
  int64_t lines = 0;
  switch (WhatOfNext(tile.item, *tile.next)) {
    case FetchedOfNext::kNothing: return;
    case FetchedOfNext::kPanels: {
      const FetchRuns panels = PanelsOfNext(tile);
      tile.fetch = panels.list();
      lines = panels.lines();
      break;
    }
    case FetchedOfNext::kRows:
      rows.List(problem_, rows_, tile.item, *tile.next, kMostBytes);
      tile.fetch = rows.list();
      lines = rows.lines();
      break;
  }
  tile.fetch_lines = lines;
  if (lines == 0) return;
  // Each strip has three products, for the scores, dP and dQ. Every product prefetches the same number of lines.
  for (core::kernels::RowBlock* rows_of : {&tile.keys.k, &tile.keys.v, &tile.keys_of_dq.k}) {
    rows_of->fetch = &tile.fetch;
    rows_of->fetch_lines = lines / (3 * tile.strips.size()) + 1;
  }
}

/// Lists the panels that the next tile reads. @return the list, whose memory is tile.runs
FetchRuns BackwardTile::PanelsOfNext(Tile& tile) const {
  const int64_t row = SlotRow(*tile.next), rows = tile.next->row_end - tile.next->row_begin;
  FetchRuns next(tile.runs);
  const auto add = [&](const float* panel, int64_t columns) {
    if (columns > 0) next.Add(panel + row * columns, rows * columns * static_cast<int64_t>(sizeof(float)));
  };
  add(tile.slot.q_panel, problem_.d + problem_.d_rope);
  add(tile.slot.do_panel, problem_.dv);
  add(tile.slot.dq_panel, problem_.d + problem_.d_rope);
  add(tile.slot.d_out, buffers_.PanelColumns(problem_.dv));
  add(tile.slot.q, buffers_.PanelColumns(problem_.d));
  add(tile.slot.q_rope, buffers_.PanelColumns(problem_.d_rope));
  return next;
}

GradInputs BackwardTile::Inputs() const {
  return {.d_out = rows_.d_out,
          .out = rows_.out,
          .softmax_max = rows_.softmax_max,
          .softmax_sum = rows_.softmax_sum,
          .centred = rows_.scores.has_pse() || rows_.scores.has_slopes()};
}

/// Computes P, dS and dQ of one strip.
void BackwardTile::StripGradients(Tile& tile, ColumnStrip& strip) const {
  const StripKernels& kernels = *strip.kernels;
  const ScorePasses& passes = score_tile_.passes();
  const int64_t n = strip.keys.size(), offset = (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  float* s = strip.s + offset;
  float* dp = strip.dp + offset;
  strip.may_meet_masked =
      score_tile_.Fill(strip, strip.keys, tile.keys, tile.scratch.bias, s, nullptr, tile.scratch.capped);
  if (const GradInputs inputs = Inputs(); inputs.centred) {
    CentreFarRows(inputs, tile.sequence.q_offset, strip, passes.scale().unit, n, s);
  }
  kernels.scores(tile.keys.V(strip.keys.begin), n, strip.do_panel, problem_.dv, false, dp, nullptr);
  const core::kernels::RowBlock k = tile.keys_of_dq.K(strip.keys.begin);
  const int64_t columns = problem_.d + problem_.d_rope;
  const bool exact_dq = strip.may_meet_masked && !KeysFinite(tile);
  const bool exact_sums = strip.may_meet_masked && !QueryPanelsFinite(tile);
  // The first tile of a row group starts dQ at 0, and later tiles add to dQ.
  const float* alpha = tile.item.first_of_rows ? nullptr : kUnitAlpha.data();

  const float factor = passes.scale().exp2_factor;
  KeepBits bits;
  const core::kernels::KeepArgs keep = passes.has_dropout()
                                           ? passes.DrawKeepBits(kernels, strip.lanes, strip.keys.begin, n, bits)
                                           : core::kernels::KeepArgs{};
  const int64_t paired = (strip.keys.begin - tile.column.begin) * kernels.OuterWidth();
  if (table_.pairs() && !exact_dq && !exact_sums && !reads_ds()) {
    kernels.pairs.backward_pairs({.s = s,
                                  .dp = dp,
                                  .keys = n,
                                  .factor = factor,
                                  .shift = strip.shift,
                                  .delta = strip.delta,
                                  .keep = keep,
                                  .p_lanes = strip.p + paired,
                                  .ds_lanes = strip.ds + paired,
                                  .ds_keys = tile.scratch.tiles.ds_keys});
    kernels.product(k, n, tile.scratch.tiles.ds_keys, columns, alpha, strip.dq);
    return;
  }
  if (passes.has_dropout()) {
    kernels.backward_softmax_dropout(s, dp, n, factor, strip.shift, strip.delta, keep);
  } else {
    kernels.backward_softmax(s, dp, n, factor, strip.shift, strip.delta);
  }
  if (has_dpse() || rows_.dslopes.data != nullptr) OptionalGradients(tile, strip);
  if (rows_.scores.caps()) {
    kernels.passes.softcap_gradient(dp, tile.scratch.capped, n, rows_.scores.softcap);
    if (strip.may_meet_masked) {  // a masked score may be NaN, and 0 * NaN is not 0
      passes.MaskInterval(kernels, strip.lanes, strip.keys.begin, n, 0.0f, dp);
      passes.MaskDense(kernels, strip.lanes, strip.keys, 0.0f, dp);
    }
  }
  if (exact_dq) {
    score_tile_.MarkMasked(strip, strip.keys, dp);
    kernels.product_exact(k, n, dp, columns, alpha, strip.dq);
  } else {
    if (table_.pairs()) kernels.pairs.pair_keys(dp, n, tile.scratch.tiles.ds_keys);
    kernels.product(k, n, table_.pairs() ? tile.scratch.tiles.ds_keys : dp, columns, alpha, strip.dq);
  }
  if (exact_sums) {
    score_tile_.MarkMasked(strip, strip.keys, s);
    score_tile_.MarkMasked(strip, strip.keys, dp);
  }
  if (!table_.pairs()) return;
  kernels.pairs.pair_lanes(s, n, strip.p + paired);
  kernels.pairs.pair_lanes(dp, n, strip.ds + paired);
}

/// Returns whether no element of the column's K is infinite or NaN.
bool BackwardTile::KeysFinite(Tile& tile) const {
  if (!tile.keys_finite) {
    tile.keys_finite = AllFinite(*table_.rows, tile.keys_of_dq.k, tile.column.size(), problem_.d + problem_.d_rope);
  }
  return *tile.keys_finite;
}

/// Returns whether no element of the tile's Q and dO is infinite or NaN.
bool BackwardTile::QueryPanelsFinite(Tile& tile) const {
  if (tile.rows_finite) return *tile.rows_finite;
  const bool pairs = table_.pairs();
  const int64_t rows = pairs ? core::RoundUp(tile.rows(), 2) : tile.rows();
  const auto finite = [&](const float* panel, int64_t columns) {
    return table_.rows->all_finite(panel, pairs ? DType::kBF16 : DType::kF32,
                                   rows * table_.rows->PanelColumns(columns));
  };
  tile.rows_finite =
      finite(tile.q, problem_.d) && finite(tile.q_rope, problem_.d_rope) && finite(tile.d_out, problem_.dv);
  return *tile.rows_finite;
}

void BackwardTile::OptionalGradients(const Tile& tile, const ColumnStrip& strip) const {
  if (has_dpse()) BiasGradient(tile, strip);
  if (rows_.dslopes.data == nullptr) return;
  const int64_t offset = (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  LaneArray<int32_t> distance = {};
  LaneArray<float> sum = {};
  float* rows = buffers_.RowSlope(workspace_) + buffers_.RowBase(tile.item.sequence) +
                tile.item.head * tile.sequence.sq + strip.lanes.row[0];
  std::copy_n(rows, strip.lanes.count, sum.data());
  score_tile_.passes().Distances(strip.lanes, strip.keys.begin, distance);
  strip.kernels->passes.slope_gradient(strip.dp + offset, strip.keys.size(), distance,
                                       rows_.scores.pse_type == PseType::kSlopesSqrt, sum);
  std::copy_n(sum.data(), strip.lanes.count, rows);
}

/// Returns the sums of the bias gradient of the tile's head, from key `key` on.
float* BackwardTile::KeyBias(const Tile& tile, int64_t key) const {
  const tiling::BackwardItem& item = tile.item;
  if (sums_ == nullptr) {
    return buffers_.KeyBias(workspace_) + buffers_.KeyBase(item.sequence) + item.head * tile.sequence.sk + key;
  }
  const KeySums& sums = sums_[item.key_sums];
  return sums.bias + item.head_kv * sums.bias_head + key - sums.first_key;
}

void BackwardTile::BiasGradient(const Tile& tile, const ColumnStrip& strip) const {
  const PseRows& where = *rows_.dpse.where;
  const float factor = rows_.scores.pse_type == PseType::kAddThenScale ? rows_.scores.scale : 1.0f;
  const float* ds = strip.dp + (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  const int64_t head = tile.item.head, b = tile.item.sequence;
  if (where.shared_rows) {
    // The tiles of a column run in the order of their rows, so rows are added to each key's sum in one order.
    float* keys = KeyBias(tile, strip.keys.begin);
    // Adding a number to -0 gives exactly this number.
    if (rows_.dpse_of_one_row) std::fill_n(keys, strip.keys.size(), -0.0f);
    for (int64_t key = 0; key < strip.keys.size(); ++key) {
      for (int64_t lane = 0; lane < strip.lanes.count; ++lane) keys[key] += factor * ds[key * strip.lanes.width + lane];
    }
    return;
  }
  LaneArray<void*> rows;
  float* pairs = buffers_.PairBias(workspace_);
  const PairBiasSizes& sizes = buffers_.pair_bias();
  const layout::MutableRowsView dpse = pairs != nullptr ? layout::MutableRowsView() : rows_.dpse.Of(b);
  for (int64_t i = 0; i < strip.lanes.count; ++i) {
    const int64_t row = strip.lanes.row[i];
    rows[i] = pairs != nullptr ? static_cast<void*>(pairs + sizes.Offset(b, head, row) + strip.keys.begin)
                               : dpse.At(0, head, row, strip.keys.begin);
  }
  strip.kernels->passes.bias_gradient(ds, strip.keys.size(), factor, where.adds(), rows,
                                      where.adds() ? DType::kF32 : where.dtype, strip.lanes.count);
}

/// dV += P^T dO and dK += dS^T Q over all strips. Strips visit different intervals of keys, whose begins and ends do
/// not decrease from strip to strip. So the keys between two neighbouring bounds are visited by consecutive strips,
/// which one product takes together.
void BackwardTile::ColumnGradients(const Tile& tile) const {
  const int64_t columns = problem_.d + problem_.d_rope;
  const bool exact = tile.rows_finite && !*tile.rows_finite;
  const auto outer = exact ? table_.rows->outer_exact : table_.rows->outer;
  for (int64_t key = tile.column.begin; key < tile.column.end;) {
    int64_t from = tile.strips.size(), to = 0, next = tile.column.end;
    for (int64_t s = 0; s < tile.strips.size(); ++s) {
      const Interval keys = tile.strips[s].keys;
      if (keys.empty()) continue;
      if (keys.begin > key) next = std::min(next, keys.begin);
      if (keys.begin > key || keys.end <= key) continue;
      next = std::min(next, keys.end);
      from = std::min(from, s);
      to = s + 1;
    }
    bool accumulate = !tile.begins_sums;
    const auto add = [&](int64_t first, int64_t end) {
      const GradStrip& strip = tile.strips[first];
      const int64_t at = key - tile.column.begin;
      OuterArgs args = OverStrips(strip, tile.strips[end - 1], plan_.block_k);
      args.accumulate = std::exchange(accumulate, true);
      args.b_rows = tile.rows();
      args.keys = next - key;
      args.a = strip.p + at * strip.kernels->OuterWidth();
      args.b = tile.d_out;
      args.columns = problem_.dv;
      const auto sums = [&](float* of, const KeyColumns& where) {
        args.c = of + where.Offset(tile.SlotKey(key), 0);
        args.c_stride = where.row;
        args.c_group = where.group;
      };
      sums(tile.slot.dv, SumsOfKeys(problem_.dv));
      outer(args);
      args.a = strip.ds + at * strip.kernels->OuterWidth();
      args.b = tile.q;
      args.columns = problem_.d;
      sums(tile.slot.dk, SumsOfKeys(columns));
      outer(args);
      if (problem_.d_rope == 0) return;
      args.b = tile.q_rope;
      args.columns = problem_.d_rope;
      args.c += SumsOfKeys(columns).Offset(0, problem_.d);
      outer(args);
    };
    const auto visits = [&](int64_t s) {
      const Interval keys = tile.strips[s].keys;
      return keys.begin <= key && key < keys.end;
    };
    // A product takes only strips of one width, because their P and dS have one shape. With listed rows, a strip
    // without keys may stand between others; it has no P and dS.
    for (int64_t first = from, end = from; first < to; first = end) {
      if (!visits(first)) {
        ++end;
        continue;
      }
      while (end < to && visits(end) && tile.strips[end].lanes.width == tile.strips[first].lanes.width) ++end;
      add(first, end);
    }
    if (!accumulate) ClearKeys(tile, {key, next});
    key = next;
  }
}

void BackwardTile::CloseRows(const Tile& tile) const {
  LaneArray<float> multiplier;
  const LaneArray<int32_t> zero = {};
  std::fill_n(multiplier.data(), kMaxStripWidth, rows_.scores.scale);
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    const GradStrip& strip = tile.strips[s];
    const auto write = [&](const layout::MutableRowsView& to, int64_t columns, const float* panel) {
      WriteStripRows(strip, panel, columns, multiplier, zero, to, tile.sequence.q_offset);
    };
    write(rows_.dq, problem_.d, strip.dq);
    if (problem_.d_rope > 0) write(rows_.dq_rope, problem_.d_rope, strip.dq + problem_.d * strip.lanes.width);
  }
}

void BackwardTile::CloseColumn(const Tile& tile) const {
  const int64_t columns = problem_.d + problem_.d_rope, begin = tile.SlotKey(tile.column.begin);
  const int64_t row = tile.first_row + begin;
  // Writes `width` columns of the sums, from column `first` on.
  const auto write = [&](const layout::MutableRowsView& to, const float* sums, const KeyColumns& where, int64_t first,
                         int64_t width, float multiplier) {
    const int64_t step = where.grouped() ? KeyColumns::kGroup : width;
    core::kernels::RowTarget target = TargetAt(to, tile.item.sequence, tile.item.head_kv, row);
    for (int64_t c = 0; c < width; c += step) {
      table_.rows->narrow(sums + where.Offset(begin, first + c), where.row, tile.column.size(), step, multiplier,
                          target);
      target.data = static_cast<std::byte*>(target.data) + step * static_cast<int64_t>(SizeOf(target.dtype));
    }
  };
  const KeyColumns dk = SumsOfKeys(columns);
  write(rows_.dk, tile.slot.dk, dk, 0, problem_.d, rows_.scores.scale);
  if (problem_.d_rope > 0) {
    write(rows_.dk_rope, tile.slot.dk, dk, problem_.d, problem_.d_rope, rows_.scores.scale);
  }
  write(rows_.dv, tile.slot.dv, SumsOfKeys(problem_.dv), 0, problem_.dv, 1.0f);
}

}  // namespace fa::ops
