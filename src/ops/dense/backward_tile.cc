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
// dQ^T of a row group and dK, dV of a column live in f32 in the head's slot; the plan's edges give every one of them a
// single writer at a time and one order of additions, so no bit depends on who runs which tile, or when. The first tile
// of a row group packs Q and dO both ways and the row statistics, the last one writes dQ; the tiles of a column do the
// same for K, V, dK and dV. Each product is a chain of f32 additions through memory: rows and keys may be grouped in
// any way without a change of the bits.

#include "ops/dense/backward_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/tile/fetch_runs.h"
#include "ops/tile/grad_strip.h"

namespace fa::ops {
namespace {

using core::kernels::OuterArgs;
using core::kernels::StripKernels;
using tiling::Interval;

bool AllFinite(const core::kernels::RowKernels& kernels, const core::kernels::RowBlock& rows, int64_t count,
               int64_t columns) {
  // A row of pairs holds twice the columns.
  const int64_t step = rows.paired ? 2 : 1, elements = step * columns;
  const int64_t bytes = step * rows.stride * static_cast<int64_t>(SizeOf(rows.dtype));
  const auto* data = static_cast<const std::byte*>(rows.data);
  for (int64_t r = 0; r < count; r += step, data += bytes) {
    if (!kernels.all_finite(data, rows.dtype, elements)) return false;
  }
  return true;
}

}  // namespace

/// Its tiles s and dp begin with the first key of the column.
struct BackwardTile::ColumnStrip : GradStrip {
  Interval keys = {};  ///< visited keys of the column
  bool may_meet_masked = false;
};

struct BackwardTile::Tile {
  const tiling::BackwardItem& item;
  const tiling::Sequence& sequence;
  BackwardSlot slot;
  BackwardScratch scratch;
  int64_t slot_row = 0;  ///< of row_begin
  Interval column;
  StripArray<ColumnStrip, kMaxGradStrips> strips = {};
  KeyRows keys = {};
  KeyRows keys_of_dq = {};  ///< the column's K as the product dS^T K takes it
  bool exact_sums = false;  ///< dV and dK skip masked pairs
  float* q = nullptr;       ///< panels of pack_rows, as long as the tile's rows
  float* q_rope = nullptr;
  float* d_out = nullptr;
  /// The tile that the worker most likely takes next, if that tile reads what lies in the slot.
  const tiling::BackwardItem* next = nullptr;
  FetchRuns::Run runs[6] = {};  ///< the panels that this tile reads
  core::kernels::FetchList fetch = {};

  [[nodiscard]] int64_t rows() const { return item.row_end - item.row_begin; }
};

BackwardTile::BackwardTile(const BoundAttentionGrad& bound, const tiling::BackwardPlan& plan,
                           const core::kernels::KernelTable& table, const AttentionGradArgs& args,
                           const AttentionArgs& forward, const BackwardBuffers& buffers, std::byte* workspace)
    : bound_(bound),
      plan_(plan),
      table_(table),
      args_(args),
      forward_(forward),
      buffers_(buffers),
      workspace_(workspace),
      score_tile_(bound.forward, table, forward) {}

void BackwardTile::operator()(int32_t task, int worker) {
  if (task >= static_cast<int64_t>(plan_.items.size())) return;  // a gate
  const tiling::BackwardItem& item = plan_.items[static_cast<size_t>(task)];
  const auto& problem = bound_.forward.problem;
  const tiling::Sequence& sequence = problem.sequences[static_cast<size_t>(item.sequence)];
  Tile tile{.item = item,
            .sequence = sequence,
            .slot = buffers_.Slot(workspace_, item.slot),
            .scratch = buffers_.Scratch(workspace_, worker),
            .column = {item.key_begin, item.key_end}};
  tile.slot_row = SlotRow(item);
  tile.next = NextOf(task);
  if (tile.rows() > 0) OpenRows(tile);
  if (!tile.column.empty() && item.first_of_column) OpenColumn(tile);
  if (tile.rows() > 0 && !tile.column.empty()) Accumulate(tile);
  if (tile.rows() > 0 && item.last_of_rows) CloseRows(tile);
  if (!tile.column.empty() && item.last_of_column) CloseColumn(tile);
}

/// Where the item's rows begin in its slot.
int64_t BackwardTile::SlotRow(const tiling::BackwardItem& item) const {
  const auto& problem = bound_.forward.problem;
  const int64_t sq = problem.sequences[static_cast<size_t>(item.sequence)].sq;
  const int64_t rows_per_head = (sq + plan_.block_q - 1) / plan_.block_q * plan_.block_q;
  return (item.head - item.head_kv * problem.group()) * rows_per_head + item.row_begin;
}

/// The next tile of the task's column, which is the first of its successors; null if that tile packs its panels itself.
const tiling::BackwardItem* BackwardTile::NextOf(int32_t task) const {
  const core::TaskGraph& graph = plan_.graph;
  if (!graph.has_edges()) return nullptr;
  const auto at = static_cast<size_t>(task);
  const int64_t first = graph.successor_begin[at];
  if (first == graph.successor_begin[at + 1]) return nullptr;
  const int32_t successor = graph.successors[static_cast<size_t>(first)];
  if (successor >= std::ssize(plan_.items)) return nullptr;  // a gate
  const tiling::BackwardItem& item = plan_.items[at];
  const tiling::BackwardItem& next = plan_.items[static_cast<size_t>(successor)];
  const bool same_column = next.slot == item.slot && next.key_begin == item.key_begin;
  return same_column && !next.first_of_rows ? &next : nullptr;
}

/// Makes the tile's strips; the first tile of the row group also packs what all later tiles read.
void BackwardTile::OpenRows(Tile& tile) const {
  const BoundAttention& forward = bound_.forward;
  const auto& problem = forward.problem;
  const tiling::BackwardItem& item = tile.item;
  const int64_t columns = problem.d + problem.d_rope;
  const FoldedRows rows{item.sequence, item.head, 1, item.row_begin, item.row_end};
  const int64_t q_row = tile.sequence.q_offset + item.row_begin;
  const GradPanels panels{.q = tile.slot.q_panel + tile.slot_row * columns,
                          .d_out = tile.slot.do_panel + tile.slot_row * problem.dv,
                          .dq = tile.slot.dq_panel + tile.slot_row * columns,
                          .shift = tile.slot.shift + tile.slot_row,
                          .delta = tile.slot.delta + tile.slot_row,
                          .s = tile.scratch.s,
                          .dp = tile.scratch.dp,
                          .columns = columns,
                          .dv = problem.dv,
                          .keys = plan_.block_k};
  for (int64_t first = 0; first < rows.size();) {
    const StripKernels& kernels = table_.ForRows(rows.size() - first);
    ColumnStrip& strip = tile.strips.Add({MakeGradStrip(forward, kernels, rows, first, panels)});
    strip.keys = strip.KeysIn(tile.column);
    first += strip.lanes.width;
  }
  tile.q = tile.slot.q + tile.slot_row * buffers_.PanelColumns(problem.d);
  tile.q_rope = tile.slot.q_rope + tile.slot_row * buffers_.PanelColumns(problem.d_rope);
  tile.d_out = tile.slot.d_out + tile.slot_row * buffers_.PanelColumns(problem.dv);
  if (!item.first_of_rows) return;

  const GradInputs inputs{.d_out = args_.d_out,
                          .out = args_.out,
                          .softmax_max = args_.softmax_max,
                          .softmax_sum = args_.softmax_sum,
                          .d_out_rows = bound_.d_out};
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    PackQueries(forward, forward_, score_tile_.passes().scale().q_multiplier, tile.strips[s]);
    OpenGradStrip(forward, inputs, *table_.rows, tile.sequence.q_offset, tile.strips[s]);
  }
  const auto pack = [&](const void* data, const layout::Rows& layout, int64_t columns_of_row, float* panel) {
    table_.rows->pack_rows({RowAddress(data, layout, item.sequence, item.head, q_row), layout.dtype, layout.row},
                           tile.rows(), columns_of_row, panel);
  };
  pack(args_.q.data, forward.q, problem.d, tile.q);
  if (forward.has_rope) pack(args_.q_rope.data, forward.q_rope, problem.d_rope, tile.q_rope);
  pack(args_.d_out.data, bound_.d_out, problem.dv, tile.d_out);
  const int64_t row_base = (item.head * tile.sequence.sq) + item.row_begin;
  if (float* deltas = buffers_.RowDelta(workspace_); deltas != nullptr) {
    std::memcpy(deltas + buffers_.RowBase(item.sequence) + row_base, tile.slot.delta + tile.slot_row,
                sizeof(float) * static_cast<size_t>(tile.rows()));
  }
  if (float* slopes = buffers_.RowSlope(workspace_); slopes != nullptr) {
    std::fill_n(slopes + buffers_.RowBase(item.sequence) + row_base, tile.rows(), 0.0f);
  }
  if (bound_.has_dpse && !bound_.dpse.shared_rows && !bound_.dpse.shared_batch) {
    const auto& rows_of = bound_.dpse.sequences[static_cast<size_t>(item.sequence)];
    const auto element = static_cast<int64_t>(SizeOf(bound_.dpse.dtype));
    for (int64_t row = item.row_begin; row < item.row_end; ++row) {
      std::memset(static_cast<std::byte*>(args_.dpse.data) +
                      (rows_of.offset + item.head * rows_of.head + row * rows_of.row) * element,
                  0, static_cast<size_t>(tile.sequence.sk * element));
    }
  }
}

void BackwardTile::OpenColumn(const Tile& tile) const {
  const BoundAttention& forward = bound_.forward;
  const auto& problem = forward.problem;
  const int64_t columns = problem.d + problem.d_rope, keys = tile.column.size(), begin = tile.column.begin;
  std::memset(tile.slot.dk + begin * columns, 0, sizeof(float) * static_cast<size_t>(keys * columns));
  std::memset(tile.slot.dv + begin * problem.dv, 0, sizeof(float) * static_cast<size_t>(keys * problem.dv));
  const int64_t row = tile.sequence.k_offset + begin;
  const auto copy = [&](const void* data, const layout::Rows& layout, int64_t width, float* to, int64_t stride) {
    (table_.pairs() ? table_.rows->pair_rows : table_.rows->widen)(
        {RowAddress(data, layout, tile.item.sequence, tile.item.head_kv, row), layout.dtype, layout.row}, keys, width,
        to, stride);
  };
  if (buffers_.copies_k()) {
    float* to = tile.slot.k + buffers_.KeyOffset(begin);
    copy(args_.k.data, forward.k, problem.d, to, columns);
    if (forward.has_rope) copy(args_.k_rope.data, forward.k_rope, problem.d_rope, to + problem.d, columns);
  }
  if (buffers_.copies_v()) copy(args_.v.data, forward.v, problem.dv, tile.slot.v + begin * problem.dv, problem.dv);
}

void BackwardTile::Accumulate(Tile& tile) const {
  BindKeys(tile);
  FetchNext(tile);
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    if (!tile.strips[s].keys.empty()) StripGradients(tile, tile.strips[s]);
  }
  ColumnGradients(tile);
}

/// Where K and V of the tile's column lie for each product.
void BackwardTile::BindKeys(Tile& tile) const {
  const BoundAttention& forward = bound_.forward;
  const auto& problem = forward.problem;
  const int64_t columns = problem.d + problem.d_rope, begin = tile.column.begin;
  const int64_t row = tile.sequence.k_offset + begin;
  const auto in_place = [&](const void* data, const layout::Rows& layout) -> core::kernels::RowBlock {
    return {RowAddress(data, layout, tile.item.sequence, tile.item.head_kv, row), layout.dtype, layout.row};
  };
  KeyRows& keys = tile.keys;
  keys.first = tile.keys_of_dq.first = begin;
  const float* k = tile.slot.k + buffers_.KeyOffset(begin);
  keys.v = buffers_.copies_v() ? core::kernels::RowBlock{tile.slot.v + begin * problem.dv, DType::kF32, problem.dv}
                               : in_place(args_.v.data, forward.v);
  if (table_.pairs()) {
    keys.k = in_place(args_.k.data, forward.k);
    if (forward.has_rope) keys.k_rope = in_place(args_.k_rope.data, forward.k_rope);
    tile.keys_of_dq.k = {.data = k, .dtype = DType::kBF16, .stride = columns, .paired = true};
    return;
  }
  keys.k = buffers_.copies_k() ? core::kernels::RowBlock{k, DType::kF32, columns} : in_place(args_.k.data, forward.k);
  keys.k_rope = {k + problem.d, DType::kF32, columns};
  tile.keys_of_dq.k = keys.k;
}

/// The panels of the next row group, which come from L3 where a head's do not stay in L2, arrive during the products.
void BackwardTile::FetchNext(Tile& tile) const {
  if (tile.next == nullptr) return;
  const auto& problem = bound_.forward.problem;
  const int64_t row = SlotRow(*tile.next), rows = tile.next->row_end - tile.next->row_begin;
  FetchRuns next(tile.runs);
  const auto add = [&](const float* panel, int64_t columns) {
    if (columns > 0) next.Add(panel + row * columns, rows * columns * static_cast<int64_t>(sizeof(float)));
  };
  add(tile.slot.q_panel, problem.d + problem.d_rope);
  add(tile.slot.do_panel, problem.dv);
  add(tile.slot.dq_panel, problem.d + problem.d_rope);
  add(tile.slot.d_out, buffers_.PanelColumns(problem.dv));
  add(tile.slot.q, buffers_.PanelColumns(problem.d));
  add(tile.slot.q_rope, buffers_.PanelColumns(problem.d_rope));
  tile.fetch = next.list();
  // Scores, dP and dQ of every strip fetch.
  const int64_t lines = next.lines() / (3 * tile.strips.size()) + 1;
  for (core::kernels::RowBlock* rows_of : {&tile.keys.k, &tile.keys.v, &tile.keys_of_dq.k}) {
    rows_of->fetch = &tile.fetch;
    rows_of->fetch_lines = lines;
  }
}

/// P and dS of one strip, and its dQ.
void BackwardTile::StripGradients(Tile& tile, ColumnStrip& strip) const {
  const auto& problem = bound_.forward.problem;
  const StripKernels& kernels = *strip.kernels;
  const ScorePasses& passes = score_tile_.passes();
  const int64_t n = strip.keys.size(), offset = (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  float* s = strip.s + offset;
  float* dp = strip.dp + offset;
  strip.may_meet_masked =
      score_tile_.Fill(strip, strip.keys, tile.keys, tile.scratch.bias, s, nullptr, tile.scratch.capped);
  kernels.scores(tile.keys.V(strip.keys.begin), n, strip.do_panel, problem.dv, false, dp, nullptr);
  if (passes.has_dropout()) passes.Dropout(kernels, strip.lanes, strip.keys.begin, n, dp);
  kernels.backward_softmax(s, dp, n, passes.scale().exp2_factor, strip.shift, strip.delta);
  if (bound_.has_dpse || bound_.has_dslopes) OptionalGradients(tile, strip);
  if (bound_.forward.softcap > 0) {
    kernels.softcap_gradient(dp, tile.scratch.capped, n, bound_.forward.softcap);
    if (strip.may_meet_masked) {  // a masked score may be NaN, and 0 * NaN is not 0
      passes.MaskInterval(kernels, strip.lanes, strip.keys.begin, n, 0.0f, dp);
      if (bound_.forward.has_dense_mask) passes.MaskDense(table_, kernels, strip.lanes, strip.keys.begin, n, 0.0f, dp);
    }
  }
  if (passes.has_dropout()) passes.Dropout(kernels, strip.lanes, strip.keys.begin, n, s);

  QueryGradients(tile, strip, dp);
  if (strip.may_meet_masked) {
    tile.exact_sums = tile.exact_sums || !QueryPanelsFinite(tile);
    if (tile.exact_sums) {
      score_tile_.MarkMasked(strip, strip.keys, s);
      score_tile_.MarkMasked(strip, strip.keys, dp);
    }
  }
  if (!table_.pairs()) return;
  const int64_t paired = (strip.keys.begin - tile.column.begin) * kernels.OuterWidth();
  kernels.pair_lanes(s, n, strip.s + paired);
  kernels.pair_lanes(dp, n, strip.dp + paired);
}

/// dQ^T += K^T dS^T of one strip.
void BackwardTile::QueryGradients(const Tile& tile, const ColumnStrip& strip, float* dp) const {
  const auto& problem = bound_.forward.problem;
  const StripKernels& kernels = *strip.kernels;
  const int64_t n = strip.keys.size(), columns = problem.d + problem.d_rope;
  const core::kernels::RowBlock k = tile.keys_of_dq.K(strip.keys.begin);
  if (strip.may_meet_masked && !AllFinite(*table_.rows, k, n, columns)) {
    score_tile_.MarkMasked(strip, strip.keys, dp);
    kernels.product_exact(k, n, dp, columns, kUnitAlpha.data(), strip.dq);
    return;
  }
  const float* ds = dp;
  if (table_.pairs()) {
    kernels.pair_keys(dp, n, tile.scratch.pairs);
    ds = tile.scratch.pairs;
  }
  kernels.product(k, n, ds, columns, kUnitAlpha.data(), strip.dq);
}

/// Whether no element of the tile's Q and dO is infinite or NaN.
bool BackwardTile::QueryPanelsFinite(const Tile& tile) const {
  const auto& problem = bound_.forward.problem;
  const bool pairs = table_.pairs();
  const int64_t rows = pairs ? (tile.rows() + 1) / 2 * 2 : tile.rows();
  const auto finite = [&](const float* panel, int64_t columns) {
    return table_.rows->all_finite(panel, pairs ? DType::kBF16 : DType::kF32,
                                   rows * table_.rows->panel_columns(columns));
  };
  return finite(tile.q, problem.d) && finite(tile.q_rope, problem.d_rope) && finite(tile.d_out, problem.dv);
}

void BackwardTile::OptionalGradients(const Tile& tile, const ColumnStrip& strip) const {
  if (bound_.has_dpse) BiasGradient(tile, strip);
  if (!bound_.has_dslopes) return;
  const int64_t offset = (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  alignas(64) int32_t distance[kMaxStripWidth] = {};
  alignas(64) float sum[kMaxStripWidth] = {};
  float* rows = buffers_.RowSlope(workspace_) + buffers_.RowBase(tile.item.sequence) +
                tile.item.head * tile.sequence.sq + strip.lanes.row[0];
  std::copy_n(rows, strip.lanes.count, sum);
  score_tile_.passes().Distances(strip.lanes, strip.keys.begin, distance);
  strip.kernels->slope_gradient(strip.dp + offset, strip.keys.size(), distance,
                                bound_.forward.pse_type == PseType::kSlopesSqrt, sum);
  std::copy_n(sum, strip.lanes.count, rows);
}

void BackwardTile::BiasGradient(const Tile& tile, const ColumnStrip& strip) const {
  const BoundAttention& forward = bound_.forward;
  const float factor = forward.pse_type == PseType::kAddThenScale ? forward.scale : 1.0f;
  const float* ds = strip.dp + (strip.keys.begin - tile.column.begin) * strip.lanes.width;
  const int64_t head = tile.item.head, b = tile.item.sequence;
  if (bound_.dpse.shared_rows) {
    // The column's tiles come in order of rows: one order of additions for every key.
    float* keys = buffers_.KeyBias(workspace_) + buffers_.KeyBase(b) + head * tile.sequence.sk + strip.keys.begin;
    for (int64_t key = 0; key < strip.keys.size(); ++key) {
      for (int64_t lane = 0; lane < strip.lanes.count; ++lane) keys[key] += factor * ds[key * strip.lanes.width + lane];
    }
    return;
  }
  void* rows[kMaxStripWidth];
  const auto& where = bound_.dpse.sequences[static_cast<size_t>(b)];
  const auto element = static_cast<int64_t>(SizeOf(bound_.dpse.dtype));
  for (int64_t i = 0; i < strip.lanes.count; ++i) {
    const int64_t row = strip.lanes.row[i];
    rows[i] = bound_.dpse.shared_batch
                  ? static_cast<void*>(buffers_.PairBias(workspace_) +
                                       (head * tile.sequence.sq + row) * tile.sequence.sk + strip.keys.begin)
                  : static_cast<std::byte*>(args_.dpse.data) +
                        (where.offset + head * where.head + row * where.row + strip.keys.begin) * element;
  }
  strip.kernels->bias_gradient(ds, strip.keys.size(), factor, bound_.dpse.shared_batch, rows,
                               bound_.dpse.shared_batch ? DType::kF32 : bound_.dpse.dtype, strip.lanes.count);
}

/// dV += P^T dO and dK += dS^T Q over all strips. Strips keep different keys. Between two neighbouring bounds of their
/// intervals, the same strips take part: a contiguous run of strips, since the bounds do not decrease along the rows.
void BackwardTile::ColumnGradients(const Tile& tile) const {
  const auto& problem = bound_.forward.problem;
  const int64_t columns = problem.d + problem.d_rope;
  const auto outer = tile.exact_sums ? table_.rows->outer_exact : table_.rows->outer;
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
    const auto add = [&](int64_t first, int64_t end) {
      const GradStrip& strip = tile.strips[first];
      const int64_t at = key - tile.column.begin;
      OuterArgs args = OverStrips(strip, tile.strips[end - 1], plan_.block_k);
      args.b_rows = tile.rows();
      args.keys = next - key;
      args.a = strip.s + at * strip.kernels->OuterWidth();
      args.b = tile.d_out;
      args.columns = problem.dv;
      args.c = tile.slot.dv + key * problem.dv;
      args.c_stride = problem.dv;
      outer(args);
      args.a = strip.dp + at * strip.kernels->OuterWidth();
      args.b = tile.q;
      args.columns = problem.d;
      args.c = tile.slot.dk + key * columns;
      args.c_stride = columns;
      outer(args);
      if (problem.d_rope == 0) return;
      args.b = tile.q_rope;
      args.columns = problem.d_rope;
      args.c += problem.d;
      outer(args);
    };
    const auto visits = [&](int64_t s) {
      const Interval keys = tile.strips[s].keys;
      return keys.begin <= key && key < keys.end;
    };
    // Strips of another width have tiles of another shape, and a strip of rows without keys, which listed rows may have
    // between others, has none.
    for (int64_t first = from, end = from; first < to; first = end) {
      if (!visits(first)) {
        ++end;
        continue;
      }
      while (end < to && visits(end) && tile.strips[end].lanes.width == tile.strips[first].lanes.width) ++end;
      add(first, end);
    }
    key = next;
  }
}

void BackwardTile::CloseRows(const Tile& tile) const {
  const BoundAttention& forward = bound_.forward;
  const auto& problem = forward.problem;
  alignas(64) float multiplier[kMaxStripWidth];
  alignas(64) const int32_t zero[kMaxStripWidth] = {};
  std::fill_n(multiplier, kMaxStripWidth, forward.scale);
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    const GradStrip& strip = tile.strips[s];
    const auto write = [&](const MutableTensorView& tensor, const layout::Rows& rows, int64_t columns,
                           const float* panel) {
      WriteStripRows(strip, panel, columns, multiplier, zero, tensor, rows, tile.sequence.q_offset);
    };
    write(args_.dq, bound_.dq, problem.d, strip.dq);
    if (forward.has_rope)
      write(args_.dq_rope, bound_.dq_rope, problem.d_rope, strip.dq + problem.d * strip.lanes.width);
  }
}

void BackwardTile::CloseColumn(const Tile& tile) const {
  const BoundAttention& forward = bound_.forward;
  const auto& problem = forward.problem;
  const int64_t columns = problem.d + problem.d_rope, begin = tile.column.begin;
  const int64_t row = tile.sequence.k_offset + begin;
  const auto write = [&](void* data, const layout::Rows& layout, const float* from, int64_t stride, int64_t width,
                         float multiplier) {
    table_.rows->narrow(
        from, stride, tile.column.size(), width, multiplier,
        {RowAddress(data, layout, tile.item.sequence, tile.item.head_kv, row), layout.dtype, layout.row});
  };
  const float* dk = tile.slot.dk + begin * columns;
  write(args_.dk.data, bound_.dk, dk, columns, problem.d, forward.scale);
  if (forward.has_rope)
    write(args_.dk_rope.data, bound_.dk_rope, dk + problem.d, columns, problem.d_rope, forward.scale);
  write(args_.dv.data, bound_.dv, tile.slot.dv + begin * problem.dv, problem.dv, problem.dv, 1.0f);
}

}  // namespace fa::ops
