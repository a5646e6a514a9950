// One query token of the sparse backward: all its heads, along the vector lanes, against the keys of its list.
//
//   the list's keys, ascending; Q^T, dO^T and their rows packed, Delta = rowsum(dO * O)
//   for each block of keys:  gather their rows of K (and V), widened to f32 where the kernels want it; kernels of bf16
//   pairs for few heads read the rows in place instead
//     for each strip of heads:
//       S^T = K Q^T,  dP^T = V dO^T,  P^T = 2^(S^T - shift),  dS^T = P^T (dP^T - Delta)
//       dQ^T += K^T dS^T
//     when every earlier token has passed these keys:
//       dK[key] += dS^T Q,  dV[key] += P^T dO                straight into the keys' sums, over all strips at once
//   dQ = scale dQ^T, transposed
//
// The sums of dK and dV are f32, with one row per key. The first tasks of the run clear them, and the last tasks write
// them. Without V, dK and dV are added to the same row. In that case scale is multiplied into dS instead of into the
// finished sum. Tokens add to a key's sum in ascending order (OrderedCommit), and within a token one head after the
// other. So no bit depends on the number of workers. If a key is selected twice, its copies are neighbours in the
// ascending list. A product holds the sums of its keys in registers, so a product takes only runs of different keys.

#include "ops/sparse/sparse_backward_tile.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "layout/bind_layout.h"
#include "ops/tile/grad_strip.h"
#include "ops/tile/row_probability.h"

namespace fa::ops {
namespace {

using core::kernels::kMaskedProbability;
using core::kernels::OuterArgs;
using core::kernels::RowBlock;
using core::kernels::StripKernels;
using tiling::Interval;

/// The number of heads whose dsink is summed in one pass over the tokens.
constexpr int64_t kHeadsTogether = 64;

/// The most heads for which the products for dK and dV are computed in one loop. With 64 heads one loop takes as long
/// as two loops. With more heads the two panels do not fit into L1 together.
constexpr int64_t kMostHeadsOfBoth = 32;

}  // namespace

struct SparseBackwardTile::TokenStrip : GradStrip {
  LaneArray<int32_t> zero = {};  ///< 1 for a row without keys
  bool skips = false;            ///< whether some row has no keys
};

/// Some heads of a token, and the token's keys.
struct SparseBackwardTile::Tile {
  const SparseToken& token;
  const SparseSequence& sequence;
  const SparseBackwardScratch& scratch;
  KeyPlace place;
  SelectedKeys keys;
  KeyRows rows = {};  ///< rows of all keys, if they are read in place
  int64_t head_begin = 0, heads = 0;
  int64_t q_row = 0;  ///< row of the query token in its tensors
  OrderedCommit::Turn& turn;
  bool last_heads = true;  ///< whether these are the token's last heads
  bool skips = false;
  StripArray<TokenStrip, kMaxTileStrips> strips = {};
};

namespace {

/// The tensors to which the sums are written at the end.
class Targets {
 public:
  Targets(const tiling::SparseProblem& sparse, const SparseGradRows& of_call) {
    const auto& problem = sparse.attention;
    const GradRows& rows = of_call.attention;
    // Without V, dS has already been scaled.
    const float dk_scale = sparse.has_v ? rows.scores.scale : 1.0f;
    if (rows.dk.data != nullptr) Add(rows.dk, dk_scale, {0, problem.d});
    if (of_call.second_dk.data != nullptr) Add(of_call.second_dk, dk_scale, {0, problem.d}, /*second=*/true);
    if (problem.d_rope > 0) Add(rows.dk_rope, dk_scale, {problem.d, problem.d + problem.d_rope});
    const int64_t dv = SparseBackwardBuffers::DvColumn(sparse);
    if (sparse.has_v) Add(rows.dv, 1.0f, {dv, dv + problem.dv});
  }
  [[nodiscard]] std::span<const KeySumTasks::Target> list() const { return {list_.data(), count_}; }

 private:
  void Add(const layout::MutableRowsView& rows, float multiplier, Interval columns, bool second = false) {
    assert(count_ < list_.size());
    list_[count_++] = {.rows = rows, .multiplier = multiplier, .columns = columns, .second = second};
  }

  std::array<KeySumTasks::Target, KeySumTasks::kMaxTargets> list_ = {};
  size_t count_ = 0;
};

}  // namespace

SparseBackwardTile::SparseBackwardTile(const tiling::SparseProblem& sparse, const tiling::SparsePlan& plan,
                                       const core::kernels::KernelTable& table, const SparseGradRows& rows,
                                       const SparseBackwardBuffers& buffers, std::byte* workspace)
    : sparse_(sparse),
      plan_(plan),
      table_(table),
      call_(rows),
      rows_(rows.attention),
      buffers_(buffers),
      workspace_(workspace),
      score_tile_(sparse.attention, table, rows.attention.scores),
      gathered_(*table.rows, buffers.gather,
                {.k = {.view = rows_.k},
                 .k_rope = {.view = rows_.k_rope},
                 .v = {.view = rows_.v},
                 .second = {.view = rows.second}}),
      sums_(buffers.sums, sparse.sequences, *table.rows, Targets(sparse, rows).list(), workspace) {}

void SparseBackwardTile::operator()(int32_t task, int worker) {
  sums_.RunTask(task, [&](int64_t token) {
    Carver carver(workspace_ + buffers_.scratch + static_cast<size_t>(worker) * buffers_.scratch_bytes);
    const SparseBackwardScratch scratch(carver, sparse_, call_.lists, plan_, table_, buffers_.gather,
                                        buffers_.has_means);
    RunToken(sparse_.sequences.Token(token), scratch);
  });
}

void SparseBackwardTile::RunToken(const SparseToken& token, const SparseBackwardScratch& scratch) const {
  const SparseSequence& sequence = sparse_.sequences.list[static_cast<size_t>(token.sequence)];
  OrderedCommit::Turn turn(sums_.commit(), token.sequence, sequence.first_token, sequence.first_token + token.row);
  const int64_t row = sparse_.sequences.Row(token), heads = sparse_.attention.heads;
  const SelectedKeys keys = scratch.selection.Select(token, call_.lists);
  if (buffers_.has_means) std::fill_n(scratch.sums, keys.count, 0.0f);
  if (keys.count == 0) {
    WriteMeans(token, keys, scratch);
    WriteEmpty(token);
    return;
  }
  for (int64_t head = 0; head < heads; head += plan_.tile_heads) {
    Tile tile{.token = token,
              .sequence = sequence,
              .scratch = scratch,
              .place = PlaceOf(token, sequence),
              .keys = keys,
              .head_begin = head,
              .heads = std::min(plan_.tile_heads, heads - head),
              .q_row = row,
              .turn = turn,
              .last_heads = head + plan_.tile_heads >= heads};
    if (buffers_.in_place != nullptr) {
      tile.rows = gathered_.InPlace(tile.place, keys.span(0, keys.count), scratch.addresses);
      gathered_.FetchFirst(tile.rows, keys.count);
    } else {
      FetchRuns first(scratch.runs);
      gathered_.AddRows(tile.place, keys.span(0, plan_.block_k), first);
      first.Fetch();
    }
    Open(tile);
    for (int64_t begin = 0; begin < keys.count; begin += plan_.block_k) Accumulate(tile, begin);
    if (buffers_.has_gradients) WriteQueries(tile);
  }
  WriteMeans(token, keys, scratch);
}

/// Writes the means over the heads that the call wants, from the sums of a token's keys.
void SparseBackwardTile::WriteMeans(const SparseToken& token, const SelectedKeys& keys,
                                    const SparseBackwardScratch& scratch) const {
  const int64_t row = sparse_.sequences.Row(token);
  const auto heads = static_cast<float>(sparse_.attention.heads);
  const auto write = [&](const layout::MutableRowsView& to, int64_t entries, Interval of) {
    if (to.data == nullptr) return;
    auto* mean = reinterpret_cast<float*>(to.At(token.sequence, 0, row));
    std::fill_n(mean, entries, 0.0f);
    for (int64_t i = of.begin; i < of.end; ++i) mean[keys.slots[i]] = scratch.sums[i] / heads;
  };
  write(call_.first_mean, call_.first_entries, {0, keys.first});
  write(call_.second_mean, call_.second_entries, {keys.first, keys.count});
}

void SparseBackwardTile::WriteEmpty(const SparseToken& token) const {
  const auto& problem = sparse_.attention;
  const int64_t row = sparse_.sequences.Row(token);
  const auto clear = [&](const layout::MutableRowsView& tensor, int64_t columns) {
    for (int64_t n = 0; n < problem.heads; ++n) tensor.Clear(token.sequence, n, row, columns);
  };
  if (!buffers_.has_gradients) return;
  if (rows_.dsink.data != nullptr) std::fill_n(RowDelta(token), problem.heads, 0.0f);
  clear(rows_.dq, problem.d);
  if (problem.d_rope > 0) clear(rows_.dq_rope, problem.d_rope);
}

float* SparseBackwardTile::RowDelta(const SparseToken& token) const {
  const SparseSequence& sequence = sparse_.sequences.list[static_cast<size_t>(token.sequence)];
  return reinterpret_cast<float*>(workspace_ + buffers_.row_delta) +
         (sequence.first_token + token.row) * sparse_.attention.heads;
}

/// Makes the strips with their row statistics, and packs the queries and d_out.
void SparseBackwardTile::Open(Tile& tile) const {
  const auto& problem = sparse_.attention;
  const SparseBackwardScratch& scratch = tile.scratch;
  const int64_t b = tile.token.sequence;
  const FoldedRows rows{b, tile.head_begin, tile.heads, tile.token.row, tile.token.row + 1};
  const GradPanels panels{.q = scratch.q_panel,
                          .d_out = scratch.do_panel,
                          .dq = scratch.dq,
                          .shift = scratch.shift,
                          .delta = scratch.delta,
                          .tiles = scratch.tiles,
                          .columns = problem.d + problem.d_rope,
                          .dv = problem.dv,
                          .keys = plan_.block_k};
  const GradInputs inputs{.d_out = rows_.d_out,
                          .out = rows_.out,
                          .softmax_max = rows_.softmax_max,
                          .softmax_sum = rows_.softmax_sum,
                          .lse = call_.lse.data != nullptr ? &call_.lse : nullptr,
                          .delta_of_empty_rows = false};
  CutGradStrips(
      problem, table_, rows, panels, tile.strips,
      [&](TokenStrip& strip) {
        strip.hull = strip.full = {0, tile.keys.count};
        PackQueries(problem, rows_.q, rows_.q_rope, score_tile_.passes().scale().q_multiplier, strip);
        OpenGradStrip(problem, inputs, *table_.rows, tile.sequence.q_offset, strip);
        for (int64_t i = 0; i < strip.lanes.count; ++i) {
          if (strip.shift[i] != std::numeric_limits<float>::infinity()) continue;
          strip.zero[i] = 1;
          strip.skips = tile.skips = true;
        }
        if (rows_.dsink.data != nullptr)
          std::copy_n(strip.delta, strip.lanes.count, RowDelta(tile.token) + strip.lanes.head[0]);
      },
      buffers_.in_place);
  if (!buffers_.has_gradients) return;
  const auto pack = [&](const layout::RowsView& tensor, int64_t size, float* panel) {
    table_.rows->pack_rows(HeadsAt(tensor, b, tile.head_begin, tile.q_row), tile.heads, size, panel);
  };
  pack(rows_.q, problem.d, scratch.q);
  if (problem.d_rope > 0) pack(rows_.q_rope, problem.d_rope, scratch.q_rope);
  pack(rows_.d_out, problem.dv, scratch.d_out);
}

void SparseBackwardTile::Accumulate(Tile& tile, int64_t begin) const {
  const auto& problem = sparse_.attention;
  const int64_t columns = problem.d + problem.d_rope;
  const std::span<const int32_t> block = tile.keys.span(begin, begin + plan_.block_k);
  const auto count = std::ssize(block);
  AimAt(tile, block);
  // The list for prefetching has the keys' sums before the rows of the next block, because the sums are needed first.
  FetchRuns next(tile.scratch.runs);
  const bool has_gradients = buffers_.has_gradients;
  const auto sums = [&](float* const* rows_of, int64_t size) {
    for (int64_t i = 0; i < count; ++i) next.Add(rows_of[i], size * static_cast<int64_t>(sizeof(float)));
  };
  if (has_gradients) sums(tile.scratch.dk_rows, columns);
  if (sparse_.has_v) sums(tile.scratch.dv_rows, problem.dv);
  const Interval keys{begin, begin + count};
  const float* alpha = begin == 0 ? nullptr : kUnitAlpha.data();  // dQ starts at 0
  if (buffers_.in_place != nullptr) {
    core::kernels::FetchList list = next.list();
    KeyRows rows = tile.rows;
    rows.k.fetch = rows.v.fetch = &list;
    rows.k.fetch_lines = next.lines() / 2;
    rows.v.fetch_lines = next.lines() - rows.k.fetch_lines;
    TokenStrip& strip = tile.strips[0];
    StripGradients(tile, strip, rows, keys);
    if (has_gradients) QueryGradients(strip, rows, keys, tile.scratch.tiles.ds_keys, alpha);
  } else {
    GatheredBlock gathered = gathered_.Gather(tile.place, block, tile.scratch.panels);
    gathered.rows.first = begin;
    gathered_.AddRows(tile.place, tile.keys.span(begin + plan_.block_k, begin + 2 * plan_.block_k), next);
    core::kernels::FetchList list = next.list();
    RowBlock k = gathered.k_of_product;
    k.fetch = &list;
    k.fetch_lines = next.lines() / tile.strips.size() + 1;
    for (int64_t s = 0; s < tile.strips.size(); ++s) {
      TokenStrip& strip = tile.strips[s];
      StripGradients(tile, strip, gathered.rows, keys);
      if (!has_gradients) continue;
      const float* ds = table_.pairs() ? tile.scratch.tiles.ds_keys : strip.dp;
      strip.kernels->product(k, count, ds, columns, alpha, strip.dq);
    }
  }
  if (!has_gradients) return;
  if (begin == 0) sums_.WaitUntilCleared();
  const int32_t last = block.back();
  tile.turn.WaitFor(last + 1);
  KeyGradients(tile, block);
  // If the last key is also the first of the next block, it is not finished.
  const int64_t end = begin + count;
  const bool goes_on = end < tile.keys.count && tile.keys.keys[end] == last;
  if (tile.last_heads) tile.turn.Publish(goes_on ? last : last + 1);
}

/// Adds dS K to dQ of one strip whose keys are read in place.
void SparseBackwardTile::QueryGradients(const TokenStrip& strip, const KeyRows& rows, Interval keys, const float* ds,
                                        const float* alpha) const {
  const auto& problem = sparse_.attention;
  const auto product = [&](RowBlock k, int64_t columns, float* dq) {
    k.fetch_ahead = 0;  // computing the scores has already fetched these rows
    strip.kernels->product(k, keys.size(), ds, columns, alpha, dq);
  };
  product(rows.K(keys.begin), problem.d, strip.dq);
  if (problem.d_rope > 0) product(rows.KRope(keys.begin), problem.d_rope, strip.dq + problem.d * strip.lanes.width);
}

/// Computes P and dS of one strip, packed for the products that follow.
void SparseBackwardTile::StripGradients(Tile& tile, TokenStrip& strip, const KeyRows& rows, Interval keys) const {
  const StripKernels& kernels = *strip.kernels;
  const ScorePasses& passes = score_tile_.passes();
  const int64_t count = keys.size();
  score_tile_.Fill(strip, keys, rows, nullptr, strip.s, nullptr, nullptr);
  if (buffers_.has_gradients) {
    kernels.scores(rows.V(keys.begin), count, strip.do_panel, sparse_.attention.dv, false, strip.dp, nullptr);
  } else {
    std::fill_n(strip.dp, count * strip.lanes.width, 0.0f);
  }
  const float factor = passes.scale().exp2_factor, ds_multiplier = sparse_.has_v ? 1.0f : rows_.scores.scale;
  // A mean adds probabilities in f32, so the probabilities are not packed right away.
  if (table_.pairs() && !tile.skips && !buffers_.has_means) {
    kernels.pairs.backward_pairs({.s = strip.s,
                                  .dp = strip.dp,
                                  .keys = count,
                                  .factor = factor,
                                  .shift = strip.shift,
                                  .delta = strip.delta,
                                  .ds_multiplier = ds_multiplier,
                                  .p_lanes = strip.p,
                                  .ds_lanes = strip.ds,
                                  .ds_keys = tile.scratch.tiles.ds_keys});
    return;
  }
  kernels.backward_softmax(strip.s, strip.dp, count, factor, strip.shift, strip.delta);
  if (ds_multiplier != 1) kernels.passes.scale_scores(strip.dp, count, ds_multiplier, 0, nullptr);
  if (tile.skips) {
    // A row without keys adds nothing, whatever its Q and dO hold, because its pairs are marked as masked.
    const LaneArray<int32_t> begin = {};
    LaneArray<int32_t> end = {};
    for (int64_t i = 0; i < strip.lanes.width; ++i) end[i] = strip.zero[i] != 0 ? 0 : static_cast<int32_t>(count);
    kernels.passes.mask_interval(strip.s, count, begin, end, kMaskedProbability);
    kernels.passes.mask_interval(strip.dp, count, begin, end, kMaskedProbability);
  }
  if (buffers_.has_means)
    AddLanes(strip.s, count, strip.lanes.width, strip.lanes.count, tile.scratch.sums + keys.begin);
  if (!table_.pairs() || !buffers_.has_gradients) return;
  kernels.pairs.pair_keys(strip.dp, count, tile.scratch.tiles.ds_keys);
  kernels.pairs.pair_lanes(strip.s, count, strip.p);
  kernels.pairs.pair_lanes(strip.dp, count, strip.ds);
}

/// Fills in the addresses of the sums of the block's keys.
void SparseBackwardTile::AimAt(const Tile& tile, std::span<const int32_t> block) const {
  const SparseBackwardScratch& scratch = tile.scratch;
  for (size_t i = 0; i < block.size(); ++i) {
    float* row = sums_.Row(tile.token.sequence, block[i]);
    scratch.dk_rows[i] = row;
    scratch.dk_rope_rows[i] = row + sparse_.attention.d;
    scratch.dv_rows[i] = row + buffers_.dv_column;
  }
}

/// Adds dS^T Q to dK and P^T dO to dV, over all strips.
void SparseBackwardTile::KeyGradients(const Tile& tile, std::span<const int32_t> block) const {
  const auto& problem = sparse_.attention;
  const SparseBackwardScratch& scratch = tile.scratch;
  const auto outer = tile.skips ? table_.rows->outer_exact : table_.rows->outer;
  const int64_t count = std::ssize(block);
  const auto add = [&](int64_t first, int64_t end, Interval keys) {
    const GradStrip& strip = tile.strips[first];
    const int64_t at = keys.begin * strip.kernels->OuterWidth();
    OuterArgs args = OverStrips(strip, tile.strips[end - 1], plan_.block_k);
    args.b_rows = tile.heads;
    args.keys = keys.size();
    OuterArgs dk = args, dk_rope = args, dv = args;
    dk.a = dk_rope.a = strip.ds + at;
    dk.b = scratch.q;
    dk.columns = problem.d;
    dk.c_rows = scratch.dk_rows + keys.begin;
    dk_rope.b = scratch.q_rope;
    dk_rope.columns = problem.d_rope;
    dk_rope.c_rows = scratch.dk_rope_rows + keys.begin;
    dv.a = strip.p + at;
    dv.b = scratch.d_out;
    dv.columns = problem.dv;
    dv.c_rows = scratch.dv_rows + keys.begin;
    // Without V, dK and dV are added to the same sums. One loop can then add both and load and store each sum once.
    const bool both = !tile.skips && table_.rows->outer_both != nullptr && !sparse_.has_v && problem.d == problem.dv &&
                      tile.heads <= kMostHeadsOfBoth;
    both ? table_.rows->outer_both(dk, dv) : outer(dk);
    if (problem.d_rope > 0) outer(dk_rope);
    if (!both) outer(dv);
  };
  for (int64_t key = 0; key < count;) {
    int64_t end = key + 1;
    while (end < count && block[static_cast<size_t>(end)] != block[static_cast<size_t>(end - 1)]) ++end;
    ForRunsOfOneWidth(tile.strips, 0, tile.strips.size(), [&](int64_t first, int64_t to) {
      add(first, to, {key, end});
    });
    key = end;
  }
}

void SparseBackwardTile::WriteQueries(const Tile& tile) const {
  const auto& problem = sparse_.attention;
  LaneArray<float> multiplier;
  std::fill_n(multiplier.data(), kMaxStripWidth, sparse_.has_v ? rows_.scores.scale : 1.0f);
  for (int64_t s = 0; s < tile.strips.size(); ++s) {
    const TokenStrip& strip = tile.strips[s];
    const auto write = [&](const layout::MutableRowsView& to, int64_t columns, const float* panel) {
      WriteStripRows(strip, panel, columns, multiplier, strip.zero, to, tile.sequence.q_offset);
    };
    write(rows_.dq, problem.d, strip.dq);
    if (problem.d_rope > 0) write(rows_.dq_rope, problem.d_rope, strip.dq + problem.d * strip.lanes.width);
  }
}

void WriteSinkGradient(const tiling::SparseProblem& sparse, const SparseGradRows& of_call,
                       const SparseBackwardBuffers& buffers, const std::byte* workspace) {
  const GradRows& rows = of_call.attention;
  const SparseSequences& sequences = sparse.sequences;
  const int64_t heads = sparse.attention.heads;
  const auto* deltas = reinterpret_cast<const float*>(workspace + buffers.row_delta);
  const auto write = [&](Interval of) {
    // Each head has one sum. Tokens add to it in their order.
    std::array<double, kHeadsTogether> sums{};
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      const SparseToken token = sequences.Token(t);
      const int64_t row = sequences.Row(token);
      for (int64_t n = of.begin; n < of.end; ++n) {
        const float delta = deltas[t * heads + n];
        // A row without keys adds nothing, whatever its statistics are.
        if (delta == 0) continue;
        const auto of_row = [&](const layout::StatsView& values) { return values.At(token.sequence, n, row); };
        const bool has_lse = of_call.lse.data != nullptr;
        const double of_sink =
            ExpBelow<double>(rows.sink.At(0, n, 0), of_row(has_lse ? of_call.lse : rows.softmax_max));
        const double sum = has_lse ? 1 : of_row(rows.softmax_sum);
        sums[static_cast<size_t>(n - of.begin)] -= of_sink / sum * delta;
      }
    }
    for (int64_t n = of.begin; n < of.end; ++n) {
      rows.dsink.Write(0, n, 0, static_cast<float>(sums[static_cast<size_t>(n - of.begin)]));
    }
  };
  for (int64_t n = 0; n < heads; n += kHeadsTogether) write({n, std::min(n + kHeadsTogether, heads)});
}

void WriteUnusedGradients(const tiling::SparseProblem& sparse, const SparseGradRows& of_call) {
  const GradRows& rows = of_call.attention;
  const auto& problem = sparse.attention;
  const auto clear = [](const layout::MutableRowsView& tensor, int64_t heads, int64_t columns) {
    return [&tensor, heads, columns](int64_t b, Interval unused) {
      for (int64_t row = unused.begin; row < unused.end; ++row) {
        for (int64_t n = 0; n < heads; ++n) tensor.Clear(b, n, row, columns);
      }
    };
  };
  const SparseSequences& sequences = sparse.sequences;
  const auto clear_means = [](const layout::MutableRowsView& tensor, int64_t entries) {
    return [&tensor, entries](int64_t b, Interval unused) {
      for (int64_t row = unused.begin; row < unused.end; ++row) tensor.Clear(b, 0, row, entries);
    };
  };
  if (rows.dq.data != nullptr) sequences.ForUnusedQueries(clear(rows.dq, problem.heads, problem.d));
  if (rows.dk.data != nullptr) sequences.ForUnusedKeys(clear(rows.dk, 1, problem.d));
  if (of_call.second_dk.data != nullptr) sequences.ForUnusedSecondKeys(clear(of_call.second_dk, 1, problem.d));
  for (const auto& [tensor, entries] :
       {std::pair{&of_call.first_mean, of_call.first_entries}, {&of_call.second_mean, of_call.second_entries}}) {
    if (tensor->data != nullptr) sequences.ForUnusedQueries(clear_means(*tensor, entries));
  }
  if (sparse.has_v) sequences.ForUnusedKeys(clear(rows.dv, 1, problem.dv));
  if (problem.d_rope == 0) return;
  sequences.ForUnusedQueries(clear(rows.dq_rope, problem.heads, problem.d_rope));
  sequences.ForUnusedKeys(clear(rows.dk_rope, 1, problem.d_rope));
}

}  // namespace fa::ops
