// One tile of the forward: some query rows (FullBlockQ) against the key blocks they must visit, in transposed form.
//
//   for each key block:  for each strip of queries (along the vector lanes):
//     S^T[key][q]  = K (broadcast, natural rows) x Q^T panel           2 d flops per pair
//     passes: cap, bias, masks                                          only where switched on, or on an edge
//     P^T = 2^(S^T - max), row sums, alpha                              online softmax, in registers
//     O^T[c][q]    = alpha O^T + V^T (broadcast, natural rows) x P^T    2 dv flops per pair
//   O = O^T / sum, transposed once per tile; if the state is by rows (docs/kernels.md), no transposition is needed.
//
// Tiles whose keys are packed for the tile unit run all of this in one loop of the kernels (AttendedTiles). Rows for
// which the loop's result may be wrong are then computed again as above.
//
// Memory: K and V are read once per tile from memory, and from L2 by the strips after the first. S^T and P^T never
// leave the cache. Q is read once, and O is written once. A block's keys are clipped, in steps of 8, to the interval
// that a strip keeps. So causal and window masks do no work outside this interval, and only its two edges run a select.

#include "ops/dense/forward_tile.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>
#include <ranges>

#include "core/integer.h"
#include "ops/tile/tile_fetch.h"
#include "tiling/forward/key_cut.h"
#include "tiling/tile_shape.h"

namespace fa::ops {

using core::kernels::kMaskedScore;
using core::kernels::StripKernels;
using tiling::Interval;

bool IsShort(const tiling::AttentionProblem& problem, int64_t block_k, int32_t sequence) {
  return problem.sequences[static_cast<size_t>(sequence)].sk <= block_k;
}

const StripKernels& ForwardKernels(const core::kernels::KernelTable& table, const tiling::AttentionProblem& problem,
                                   int64_t block_k, int32_t sequence, int64_t rows) {
  const int64_t group_rows = problem.group() * problem.sequences[static_cast<size_t>(sequence)].rule.sq;
  const StripKernels* few = table.ForFewRows(group_rows);
  return few != nullptr ? *few : StripFor(table, rows, IsShort(problem, block_k, sequence));
}

size_t PartStateFloats(int64_t rows, int64_t dv) {
  // The kernels of few rows take at most kFew lanes.
  constexpr int64_t kFew = tiling::kFewestStateLanes;
  const int64_t lanes = rows <= kFew ? kFew : MostLanes(rows);
  return static_cast<size_t>(core::RoundUp(lanes * (dv + 2), 16));
}

ForwardTile::ForwardTile(const tiling::AttentionProblem& problem, const tiling::ForwardPlan& plan,
                         const core::kernels::KernelTable& table, const ForwardRows& rows,
                         const ForwardBuffers& buffers, std::byte* workspace, const OutputQuantization* quantization)
    : problem_(problem),
      plan_(plan),
      table_(table),
      rows_(rows),
      fetches_tiles_(table.pairs() ? table.row_state != nullptr && rows.k.in_one_tensor()
                                   : !buffers.converts_keys && !problem.whole_rows),
      buffers_(buffers),
      workspace_(workspace),
      strips_(problem, table, rows, quantization),
      attended_(problem, *table.rows, rows, strips_),
      panels_(problem, plan, table, rows, workspace + buffers.slots) {}

void ForwardTile::operator()(int32_t task, int worker) {
  const auto tiles = static_cast<int64_t>(plan_.items.size()), packs = static_cast<int64_t>(plan_.packs.size());
  if (task >= tiles + packs) return;
  std::byte* memory = workspace_ + buffers_.scratch + static_cast<size_t>(worker) * buffers_.scratch_bytes;
  const TileScratch scratch = TileScratch::Carve(memory, problem_, plan_.shape.block_q, plan_.shape.block_k,
                                                 buffers_.converts_keys, buffers_.stages_bias, problem_.packs_tiles);
  if (task >= tiles) return panels_.Pack(plan_.packs[static_cast<size_t>(task - tiles)], scratch);
  RunTile(plan_.items[static_cast<size_t>(task)],
          task + 1 < tiles ? &plan_.items[static_cast<size_t>(task + 1)] : nullptr, scratch);
}

void ForwardTile::RunTile(const tiling::ForwardItem& item, const tiling::ForwardItem* next,
                          const TileScratch& scratch) const {
  ForwardStrips::Strips strips;
  const FoldedRows folded{item.sequence, item.head_begin, item.heads, item.row_begin, item.row_end};
  const int64_t group_rows = problem_.group() * problem_.sequences[static_cast<size_t>(item.sequence)].rule.sq;
  const StripKernels* few = table_.ForFewRows(group_rows);
  const bool is_short = IsShort(problem_, plan_.shape.block_k, item.sequence);
  if (problem_.packs_tiles && item.slot >= 0) return AttendTiles(item, folded, scratch);
  strips_.Open(folded, few, nullptr, scratch, strips, is_short);
  const int64_t count = strips.size();
  if (!is_short || few != nullptr || !fetches_tiles_ || item.parts > 1) {
    VisitKeys(item, scratch, strips, /*anew=*/false);
  } else if (!item.keys.empty()) {
    VisitShort(item, next, scratch, strips);
  }
  bool anew = false;
  for (int64_t s = 0; s < count; ++s) anew = strips_.Restart(strips[s]) || anew;
  if (anew) VisitKeys(item, scratch, strips, anew);
  if (item.parts > 1 && !MergeParts(item, strips.data(), count)) return;
  for (int64_t s = 0; s < count; ++s) strips_.Finish(strips[s], scratch);
}

/// Computes a tile whose keys are packed for the tile unit.
void ForwardTile::AttendTiles(const tiling::ForwardItem& item, const FoldedRows& folded,
                              const TileScratch& scratch) const {
  assert(item.parts == 1);
  ForwardStrips::Strips strips;
  strips_.Open(folded, &table_.widest(), nullptr, scratch, strips);
  const KeyTiles keys = panels_.Tiles(item);
  attended_.Visit(keys, scratch, strips);
  if (attended_.Reopen(keys, scratch, strips)) {
    VisitKeys(item, scratch, strips, /*anew=*/true);
    attended_.Restore(keys, scratch, strips);
  }
  for (int64_t s = 0; s < strips.size(); ++s) strips_.Finish(strips[s], scratch);
}

/// Visits every block of the item's keys.
/// @param anew  visit only the strips that start again
void ForwardTile::VisitKeys(const tiling::ForwardItem& item, const TileScratch& scratch, ForwardStrips::Strips& strips,
                            bool anew) const {
  const int64_t count = strips.size(), block_k = plan_.shape.block_k;
  Interval keys = item.keys;
  if (problem_.whole_rows) {
    if (keys.empty()) return;
    keys.begin = keys.begin / kKeyStep * kKeyStep;
    const KeyRows rows = panels_.Block(item, keys, *strips[0].kernels, scratch);
    for (int64_t s = 0; s < count; ++s) {
      if (anew && !strips[s].skips_masked) continue;
      strips_.VisitWholeRows(strips[s], keys, rows, scratch);
    }
    return;
  }
  if (count == 1) {
    RunningStrip& strip = strips[0];
    for (const int64_t end = strips_.AttendedEnd(strip, keys); keys.begin < end;) {
      const Interval run{keys.begin, std::min(keys.begin + ForwardStrips::kAttendKeys, end)};
      strips_.Attend(strip, run, item.head_kv, panels_.Block(item, run, *strip.kernels, scratch, /*attended=*/true),
                     plan_.brings_rows);
      keys.begin = run.end;
    }
  }
  const int64_t first = keys.empty() ? keys.end : keys.begin / block_k * block_k;
  for (int64_t begin = first; begin < keys.end; begin += block_k) {
    const Interval block{std::max(begin, keys.begin / kKeyStep * kKeyStep), std::min(begin + block_k, keys.end)};
    const auto keeps = [&](int64_t s) { return !strips_.score_tile().KeptKeys(strips[s], block).empty(); };
    if (problem_.dense_mask && std::ranges::none_of(std::views::iota(int64_t{0}, count), keeps)) continue;
    KeyRows rows = panels_.Block(item, block, *strips[0].kernels, scratch);
    for (int64_t s = 0; s < count; ++s) {
      if (anew && !strips[s].skips_masked) continue;
      strips_.VisitBlock(strips[s], block, rows, scratch);
      // The first strip has prefetched the next block into L2, so the other strips need not.
      rows.k.fetch_ahead = rows.k_rope.fetch_ahead = rows.v.fetch_ahead = 0;
    }
  }
}

/// Visits the only key block of a short sequence (IsShort), and prefetches O of this tile and Q, K and V of the next
/// tile. The tiles of a short sequence are too short for the hardware's prefetchers.
void ForwardTile::VisitShort(const tiling::ForwardItem& item, const tiling::ForwardItem* next,
                             const TileScratch& scratch, ForwardStrips::Strips& strips) const {
  TileFetch fetch;
  fetch.List(problem_, rows_, plan_.shape.block_k, item, next);
  core::kernels::FetchList list = fetch.list();
  list.into_l1 = true;
  const int64_t count = strips.size(), products = 2 * count;
  const Interval block{item.keys.begin / kKeyStep * kKeyStep, item.keys.end};
  KeyRows rows = panels_.Block(item, block, *strips[0].kernels, scratch);
  for (core::kernels::RowBlock* read : {&rows.k, &rows.v}) {
    read->fetch = &list;
    read->fetch_lines = core::CeilDiv(fetch.lines(), products);
  }
  for (int64_t s = 0; s < count; ++s) strips_.VisitBlock(strips[s], block, rows, scratch);
}

/// Stores the state of this part of the keys. The part that finishes last merges the states of all parts, in their
/// order. Returns whether this call has merged them. No task waits, and no bit depends on which task is the last.
bool ForwardTile::MergeParts(const tiling::ForwardItem& item, RunningStrip* strips, int64_t count) const {
  const int64_t dv = problem_.dv;
  auto* states = reinterpret_cast<float*>(workspace_ + buffers_.states);
  const auto part_of = [&](int32_t part) {
    return states + static_cast<size_t>(item.first_state + part) * buffers_.state_floats;
  };
  const auto floats = [dv](const RunningStrip& strip) { return 2 * strip.lanes.width + strip.kernels->rows * dv; };
  float* mine = part_of(item.part);
  for (int64_t s = 0; s < count; mine += floats(strips[s++])) {
    const RunningStrip& strip = strips[s];
    const auto width = static_cast<size_t>(strip.lanes.width);
    const auto state = static_cast<size_t>(strip.kernels->rows * dv);
    std::memcpy(mine, strip.row_max, sizeof(float) * width);
    std::memcpy(mine + width, strip.row_sum, sizeof(float) * width);
    if (strip.started) {
      std::memcpy(mine + 2 * width, strip.state, sizeof(float) * state);
    } else {
      std::memset(mine + 2 * width, 0, sizeof(float) * state);
    }
  }
  std::atomic_ref<int32_t> arrived(reinterpret_cast<int32_t*>(workspace_ + buffers_.arrivals)[item.merge]);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < item.parts) return false;
  arrived.store(0, std::memory_order_relaxed);

  for (int64_t s = 0; s < count; ++s) {
    ForwardStrips::Reset(strips[s]);
    std::fill_n(strips[s].state, strips[s].kernels->rows * dv, 0.0f);
    strips[s].started = true;
  }
  for (int32_t part = 0; part < item.parts; ++part) {
    const float* from = part_of(part);
    for (int64_t s = 0; s < count; from += floats(strips[s++])) AddPart(from, strips[s]);
  }
  return true;
}

/// Adds the state of a part to `strip`: with m = max(own max, part's max), own *= 2^(own max - m) and own += 2^(part's
/// max - m) part.
void ForwardTile::AddPart(const float* part, RunningStrip& strip) const {
  const int64_t width = strip.lanes.width;
  const float *part_max = part, *part_sum = part + width;
  const float factor = strips_.score_tile().passes().scale().exp2_factor;
  LaneArray<float> own = {}, other = {};
  for (int64_t i = 0; i < width; ++i) {
    const float max = std::max(strip.row_max[i], part_max[i]);
    const float reference = max == kMaskedScore ? 0 : max;  // -inf - -inf would be NaN
    own[i] = factor * (strip.row_max[i] - reference);
    other[i] = factor * (part_max[i] - reference);
    strip.row_max[i] = max;
  }
  table_.rows->exp2(own, width, own);
  table_.rows->exp2(other, width, other);
  for (int64_t i = 0; i < width; ++i) strip.row_sum[i] = own[i] * strip.row_sum[i] + other[i] * part_sum[i];
  strip.kernels->add_state(part + 2 * width, other, own, problem_.dv, strip.state);
}

}  // namespace fa::ops
