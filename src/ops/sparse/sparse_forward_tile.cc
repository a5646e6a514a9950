// One query token of the sparse forward: all its heads, along the vector lanes, against the keys of its list.
//
//   the list's keys, ascending
//   for each block of 128 keys:  gather their rows of K (and V) next to each other, widened to f32 where the kernels
//   want it; kernels of bf16 pairs read K by address, and then only V is copied
//     for each strip of heads: scores, online softmax, product, as in the dense forward
//   one or two heads: for each block of 64 keys, scores in one loop with the product of the block before
//   O = O^T / sum
//
// Memory: a token reads its keys' rows once, 2.4 MB for 2048 keys of 576 bf16. With V of 512 columns, each key then
// takes 2 * 1088 operations per head. The next block's rows are fetched into L2 while this block's rows are multiplied.
// Up to eight heads take the kernels of few rows. Reading then takes all the time, so nothing is gathered, and rows are
// read in place. Kernels of bf16 pairs also read rows in place for up to 16 heads: copying would be a large part of so
// little work.
//
// Rows of quantised keys are widened when they are gathered, for any number of heads. Kernels and blocks are the same
// as without quantisation. If the widened rows have the values of plain rows, the bits are the same too.

#include "ops/sparse/sparse_forward_tile.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "core/run/executor.h"
#include "ops/sparse/sparse_kernels.h"
#include "ops/tile/row_probability.h"
#include "ops/tile/tile_scratch.h"

namespace fa::ops {

using core::kernels::StripKernels;
using tiling::Interval;

struct SparseForwardTile::Scratch {
  Scratch(Carver& carver, const tiling::SparseProblem& sparse, const TokenLists& lists, const tiling::SparsePlan& plan,
          const GatherShape& gather)
      : selection(carver, sparse, lists),
        panels(carver, gather),
        max_keys(TokenKeys::MostKeys(sparse, lists)),
        addresses(carver, gather, gather.block == 0 ? max_keys : 0),
        runs(carver.Array<FetchRuns::Run>(3, gather.block), static_cast<size_t>(3 * gather.block)) {
    const auto& problem = sparse.attention;
    const size_t bytes = TileScratch::Bytes(problem, plan.tile_heads, plan.block_k, false, false);
    std::byte* memory = carver.Array<std::byte>(static_cast<int64_t>(bytes));
    if (memory != nullptr) {
      tile = TileScratch::Carve(memory, problem, plan.tile_heads, plan.block_k, false, false);
    }
    if (!sparse.whole_tokens) return;
    raw_scores = carver.Floats(max_keys, MostLanes(plan.tile_heads));
    sums = carver.Floats(max_keys);
  }

  TokenKeys selection;
  GatherPanels panels;
  int64_t max_keys;
  KeyAddresses addresses;
  std::span<FetchRuns::Run> runs;  ///< memory to list the rows of the next block
  TileScratch tile;
  float* raw_scores = nullptr;  ///< strip after strip, [max_keys][width]
  float* sums = nullptr;        ///< for each key: the sum of the probabilities of all heads
};

/// Some heads of a token.
struct SparseForwardTile::Heads {
  SparseToken token;
  KeyPlace place;
  FoldedRows rows;
};

SparseForwardBuffers::SparseForwardBuffers(const BoundSparse& bound, const tiling::SparsePlan& plan,
                                           const core::kernels::KernelTable& table, tiling::WorkspacePlan& workspace) {
  const auto& problem = bound.attention.problem;
  few = FewHeads(table, problem.heads);
  const StripKernels& kernels = few != nullptr ? *few : table.widest();
  const bool quantized = bound.quantized.has_value();
  gather = {
      .dtype = problem.dtype,
      .form = quantized ? WidenedFormOf(kernels, problem.dtype) : KeyFormOf(kernels, problem.dtype),
      .d = problem.d,
      .d_rope = problem.d_rope,
      .dv = problem.dv,
      .shared_v = !bound.has_v,
      .block = ReadsKeysInPlace(bound, table) ? 0 : plan.block_k,
      .values_ahead = few != nullptr && few->in_place ? plan.values_ahead : GatheredKeys::ValuesAhead(!bound.has_v),
      .quantized = bound.quantized,
      .listed = quantized && kernels.in_place};
  if (quantized && gather.form == KeyForm::kPairs) gather.pairs = &table.narrowest();
  gather.by_address = gather.block > 0 && !quantized && kernels.scores_by_address;
  Carver carver(nullptr);
  const tiling::SparseProblem sparse = bound.Problem();
  static_cast<void>(SparseForwardTile::Scratch(carver, sparse, bound.Lists(), plan, gather));
  scratch_bytes = carver.used();
  run_state = workspace.Book("run state", core::RunStateBytes(plan.graph));
  scratch = workspace.Book("selected keys, their rows, tile scratch", scratch_bytes, plan.graph.workers());
}

SparseForwardTile::SparseForwardTile(const tiling::SparseProblem& sparse, const tiling::SparsePlan& plan,
                                     const core::kernels::KernelTable& table, const SparseRows& rows,
                                     const SparseForwardBuffers& buffers, std::byte* workspace)
    : sparse_(sparse),
      plan_(plan),
      table_(table),
      rows_(rows),
      buffers_(buffers),
      workspace_(workspace),
      strips_(sparse.attention, table, rows.attention, nullptr),
      gathered_(
          *table.rows, buffers.gather,
          {.k = rows.attention.k, .k_rope = rows.attention.k_rope, .v = rows.attention.v, .second = rows.second}) {}

void SparseForwardTile::operator()(int32_t task, int worker) {
  const int64_t heads = sparse_.attention.heads, head_tasks = plan_.head_tasks(heads);
  const int64_t first = task / head_tasks * plan_.tokens_per_task;
  const int64_t head = task % head_tasks * plan_.heads_per_task;
  Carver carver(workspace_ + buffers_.scratch + static_cast<size_t>(worker) * buffers_.scratch_bytes);
  const Scratch scratch(carver, sparse_, rows_.lists, plan_, buffers_.gather);
  const int64_t end = std::min(first + plan_.tokens_per_task, sparse_.sequences.tokens);
  for (int64_t token = first; token < end; ++token) {
    RunToken(sparse_.sequences.Token(token), head, std::min(head + plan_.heads_per_task, heads), scratch);
  }
}

void SparseForwardTile::RunToken(const SparseToken& token, int64_t head_begin, int64_t head_end,
                                 const Scratch& scratch) const {
  const SparseSequences& sequences = sparse_.sequences;
  const SelectedKeys keys = scratch.selection.Select(token, rows_.lists);
  const KeyPlace place = PlaceOf(token, sequences.list[static_cast<size_t>(token.sequence)]);
  if (sparse_.whole_tokens) std::fill_n(scratch.sums, keys.count, 0.0f);
  for (int64_t head = head_begin; head < head_end; head += plan_.tile_heads) {
    const Heads heads{token, place,
                      FoldedRows{.sequence = token.sequence,
                                 .head_begin = head,
                                 .heads = std::min(plan_.tile_heads, head_end - head),
                                 .row_begin = token.row,
                                 .row_end = token.row + 1}};
    ForwardStrips::Strips strips;
    VisitKeys(heads, keys, scratch, strips);
    for (int64_t s = 0; s < strips.size(); ++s) {
      assert(!strips[s].met_masked);  // Restart would be needed if a masked pair had been met
      strips_.Finish(strips[s], scratch.tile);
    }
    if (sparse_.whole_tokens) AddProbabilities(strips, keys, scratch);
  }
  if (sparse_.whole_tokens) WriteMean(token, keys, scratch);
}

void SparseForwardTile::VisitKeys(const Heads& heads, const SelectedKeys& keys, const Scratch& scratch,
                                  ForwardStrips::Strips& strips) const {
  const Interval all{0, keys.count};
  if (buffers_.gather.block == 0) {
    // With few heads the rows are read in place, since copying them would take as long as their products.
    const KeyRows rows = gathered_.InPlace(heads.place, keys.span(0, keys.count), scratch.addresses);
    gathered_.FetchFirst(rows, keys.count);
    strips_.Open(heads.rows, buffers_.few, &all, scratch.tile, strips);
    if (buffers_.few->few_rows.scores_beside != nullptr) {
      // The rows of a block arrive slowly, so its scores are computed in one loop with the product of the previous
      // block.
      RunningStrip& strip = strips[0];
      const int64_t half = plan_.block_k / 2;
      BlockInFlight flight(scratch.tile.scores, half * strip.lanes.width);
      for (int64_t begin = 0; begin < keys.count; begin += half) {
        float* raw = sparse_.whole_tokens ? scratch.raw_scores + begin * strip.lanes.width : nullptr;
        strips_.VisitBlockInFlight(strip, {begin, std::min(begin + half, keys.count)}, rows, scratch.tile, flight, raw);
      }
      ForwardStrips::EndFlight(flight);
      return;
    }
    for (int64_t begin = 0; begin < keys.count; begin += plan_.block_k) {
      VisitBlock({begin, std::min(begin + plan_.block_k, keys.count)}, rows, scratch, strips);
    }
    return;
  }
  // Kernels that have `scores_beside` take half a block at a time if they read keys in place, as above. With gathered
  // keys these kernels take blocks of the same size, so that the bits are the same.
  const bool halves = buffers_.few != nullptr && buffers_.few->few_rows.scores_beside != nullptr;
  const int64_t step = halves ? plan_.block_k / 2 : plan_.block_k;
  const auto runs_of = [&](int64_t begin) {
    FetchRuns runs(scratch.runs);
    gathered_.AddRows(heads.place, keys.span(begin, begin + step), runs);
    return runs;
  };
  // The first rows are prefetched before the queries are packed, because packing takes as long as the rows take to
  // arrive.
  runs_of(0).Fetch();
  strips_.Open(heads.rows, buffers_.few, &all, scratch.tile, strips);
  for (int64_t begin = 0; begin < keys.count; begin += step) {
    const std::span<const int32_t> block = keys.span(begin, begin + step);
    KeyRows rows = gathered_.Gather(heads.place, block, scratch.panels).rows;
    rows.first = begin;
    // The next block's rows arrive while this block's rows are multiplied.
    const FetchRuns next = runs_of(begin + step);
    core::kernels::FetchList list = next.list();
    const auto& problem = sparse_.attention;
    const int64_t columns = problem.d + problem.d_rope + problem.dv;
    rows.k.fetch = rows.v.fetch = &list;
    rows.k.fetch_lines = next.lines() * (problem.d + problem.d_rope) / (columns * strips.size()) + 1;
    rows.v.fetch_lines = next.lines() * problem.dv / (columns * strips.size()) + 1;
    VisitBlock({begin, begin + std::ssize(block)}, rows, scratch, strips);
  }
}

void SparseForwardTile::VisitBlock(Interval block, const KeyRows& rows, const Scratch& scratch,
                                   ForwardStrips::Strips& strips) const {
  int64_t lanes = 0;  // number of lanes of the strips before this one
  for (int64_t s = 0; s < strips.size(); ++s) {
    const int64_t width = strips[s].lanes.width;
    float* raw = sparse_.whole_tokens ? scratch.raw_scores + scratch.max_keys * lanes + block.begin * width : nullptr;
    strips_.VisitBlock(strips[s], block, rows, scratch.tile, raw);
    lanes += width;
  }
}

/// Adds the probabilities of the strips' heads to scratch.sums, from their raw scores and final statistics.
void SparseForwardTile::AddProbabilities(const ForwardStrips::Strips& strips, const SelectedKeys& keys,
                                         const Scratch& scratch) const {
  const ScoreScale& scale = strips_.score_tile().passes().scale();
  float* raw = scratch.raw_scores;
  for (int64_t s = 0; s < strips.size(); ++s) {
    const RunningStrip& strip = strips[s];
    const int64_t width = strip.lanes.width;
    LaneArray<float> shift;
    const LaneArray<float> delta = {};
    // A lane without a row adds nothing.
    std::fill_n(shift.data(), width, std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < strip.lanes.count; ++i) shift[i] = strips_.Shift(strip, i);
    for (int64_t begin = 0; begin < keys.count; begin += plan_.block_k) {
      const int64_t count = std::min(plan_.block_k, keys.count - begin);
      float* p = raw + begin * width;
      std::memset(scratch.tile.scores, 0, sizeof(float) * static_cast<size_t>(count * width));
      strip.kernels->backward_softmax(p, scratch.tile.scores, count, scale.exp2_factor, shift, delta);
      AddLanes(p, count, width, strip.lanes.count, scratch.sums + begin);
    }
    raw += scratch.max_keys * width;
  }
}

void SparseForwardTile::WriteMean(const SparseToken& token, const SelectedKeys& keys, const Scratch& scratch) const {
  auto* mean = reinterpret_cast<float*>(rows_.mean.At(token.sequence, 0, sparse_.sequences.Row(token)));
  std::fill_n(mean, rows_.lists.first.lists.entries, 0.0f);
  const auto heads = static_cast<float>(sparse_.attention.heads);
  for (int64_t i = 0; i < keys.count; ++i) mean[keys.slots[i]] = scratch.sums[i] / heads;
}

void WriteUnusedSparseRows(const tiling::SparseProblem& sparse, const SparseRows& rows) {
  sparse.sequences.ForUnusedQueries([&](int64_t b, Interval unused) {
    WriteUnusedRows(sparse.attention, rows.attention, b, unused);
    if (!sparse.whole_tokens) return;
    for (int64_t row = unused.begin; row < unused.end; ++row) {
      std::fill_n(reinterpret_cast<float*>(rows.mean.At(b, 0, row)), rows.lists.first.lists.entries, 0.0f);
    }
  });
}

}  // namespace fa::ops
