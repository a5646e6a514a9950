// Computes score(t, s) = sum over heads of w ReLU(q.k), then calls the TokenStep of the run on a query token's row of
// scores. Products of a token's heads with a strip of keys are summed over the heads while they lie in L1. So only S2
// scores per token are stored, not S2 x heads products.
//
// With many tokens, keys lie along the lanes. Keys are packed once per group of tokens, and q is broadcast. With one or
// two tokens, packing would take 20 % of the time of a token's products. So heads lie along the lanes, and keys are
// broadcast. The bits are the same in both cases.
#include "ops/indexer/indexer_tile.h"

#include <algorithm>
#include <numeric>

#include "core/integer.h"
#include "core/run/executor.h"
#include "ops/tile/strip.h"
#include "tiling/sparse/make_indexer_plan.h"

namespace fa::ops {
namespace {

using core::RoundUp;
using core::kernels::RowBlock;

// With at least this many tokens, packing keys pays.
constexpr int64_t kManyTokens = 3;

// The number of keys of a tile if heads lie along the lanes. With 64 heads the tile takes 16 KB, half of L1.
constexpr int64_t kBlockKeys = 64;
static_assert(kBlockKeys % 2 == 0, "GatherShape::block is even: kernels of pairs take keys two by two");

}  // namespace

IndexerProgram::IndexerProgram(const IndexerShape& bound_shape, const core::kernels::KernelTable& table_of_type,
                               const tiling::Machine& machine, size_t bytes_of_step, tiling::WorkspacePlan& workspace)
    : shape(bound_shape),
      table(table_of_type),
      kernels(core::kernels::IndexerKernelsFor(table.isa)),
      strips(table, shape.heads),
      widens(KeyFormOf(table.widest(), shape.dtype) == KeyForm::kF32),
      gather{.dtype = shape.dtype, .form = KeyFormOf(strips.kernels(), shape.dtype), .d = shape.d, .block = kBlockKeys},
      plan(tiling::MakeIndexerPlan(shape.sequences, shape.heads, shape.d, KeyWidth(), machine)),
      row_floats(RoundUp(shape.sequences.max_sk, KeyWidth())),
      step_bytes(bytes_of_step),
      scratch_bytes(IndexerTile::ScratchBytes(*this)),
      run_state(workspace.Book("run state", core::RunStateBytes(plan.graph))),
      scratch(workspace.Book("scores and results of the groups in flight", scratch_bytes, plan.graph.workers())),
      scores(workspace.Book("scores of all tokens", static_cast<size_t>(row_floats) * sizeof(float),
                            plan.cut ? shape.sequences.tokens : 0)) {}

IndexerTile::Scratch::Scratch(Carver& carver, const IndexerProgram& program)
    : scores(carver.Floats(program.plan.cut ? 0 : program.plan.group * program.row_floats)),
      panel(carver.Floats(std::max(program.table.widest().PanelRows(program.shape.d) * program.KeyWidth(),
                                   program.strips.PanelFloats(program.shape.d)))),
      queries(carver.Floats(program.widens ? program.plan.group : 0, program.shape.heads, program.shape.d)),
      weights(carver.Floats(program.plan.group, program.shape.heads)),
      tile(carver.Floats(std::max(core::SaturatedProduct(program.shape.heads, program.KeyWidth()),
                                  core::SaturatedProduct(kBlockKeys, program.strips.lanes())))),
      block(carver.Array<int32_t>(kBlockKeys)),
      gathered(carver, program.gather),
      step(carver.Array<std::byte>(program.step_bytes)) {}

size_t IndexerTile::ScratchBytes(const IndexerProgram& program) {
  Carver carver(nullptr);
  static_cast<void>(Scratch(carver, program));
  return carver.used();
}

IndexerTile::Scratch IndexerTile::ScratchOf(int worker) const {
  Carver carver(workspace_ + program_.scratch + static_cast<size_t>(worker) * program_.scratch_bytes);
  return {carver, program_};
}

void IndexerTile::operator()(int32_t task, int worker) const {
  const Scratch scratch = ScratchOf(worker);
  const int64_t row_floats = program_.row_floats;
  auto* stored = reinterpret_cast<float*>(workspace_ + program_.scores);
  const int64_t items = std::ssize(program_.plan.items);
  if (task >= items) {
    const int64_t token = task - items;
    return step_(program_.shape.sequences.Token(token), stored + token * row_floats, scratch.step);
  }
  const tiling::IndexerItem& item = program_.plan.items[static_cast<size_t>(task)];
  float* scores = program_.plan.cut ? stored + item.first_token * row_floats : scratch.scores;
  const int64_t tokens = item.rows.end - item.rows.begin;
  ReadTokens(item, scratch);
  if (tokens >= kManyTokens) {
    ScoreKeysAlongLanes(item, scratch, scores);
  } else {
    ScoreHeadsAlongLanes(item, scratch, scores);
  }
  if (program_.plan.cut) return;
  for (int64_t i = 0; i < tokens; ++i) step_(Token(item, i), scores + i * row_floats, scratch.step);
}

/// Converts the tokens' weights to f32, and their queries if these are broadcast and the kernels cannot read their
/// type.
void IndexerTile::ReadTokens(const tiling::IndexerItem& item, const Scratch& scratch) const {
  const IndexerShape& shape = program_.shape;
  const auto& kernels = *program_.table.rows;
  const int64_t tokens = item.rows.end - item.rows.begin;
  for (int64_t i = 0; i < tokens; ++i) {
    const SparseToken token = Token(item, i);
    shape.ReadWeights(kernels, rows_.weights, token, scratch.weights + i * shape.heads);
    if (!program_.widens || tokens < kManyTokens) continue;
    kernels.widen(shape.Heads(rows_.q, token), shape.heads, shape.d, scratch.queries + i * shape.heads * shape.d,
                  shape.d);
  }
}

void IndexerTile::ScoreKeysAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const {
  const IndexerShape& shape = program_.shape;
  const core::kernels::StripKernels& kernels = program_.table.widest();
  const layout::HeadRows keys = shape.Place(item.sequence).RowsOf(rows_.k);
  const int64_t tokens = item.rows.end - item.rows.begin;
  for (int64_t key = item.keys.begin; key < item.keys.end; key += kernels.width) {
    LaneArray<const void*> rows;
    const int64_t count = std::min(kernels.width, item.keys.end - key);
    for (int64_t lane = 0; lane < count; ++lane) rows[lane] = keys.At(key + lane);
    kernels.pack_queries({rows, shape.dtype, count}, shape.d, 1, scratch.panel);
    for (int64_t i = 0; i < tokens; ++i) {
      const SparseToken token = Token(item, i);
      if (shape.sequences.Limit(token) <= key) continue;
      const RowBlock q = program_.widens ? RowBlock{scratch.queries + i * shape.heads * shape.d, DType::kF32, shape.d}
                                         : shape.Heads(rows_.q, token);
      kernels.scores(q, shape.heads, scratch.panel, shape.d, false, scratch.tile, nullptr);
      program_.kernels.add_heads(scratch.tile, shape.heads, kernels.width, scratch.weights + i * shape.heads, false,
                                 scores + i * program_.row_floats + key);
    }
  }
}

/// Returns `count` rows of keys for the kernels: in place if they are evenly spaced, otherwise copied next to each
/// other.
RowBlock IndexerTile::KeyRows(const KeyPlace& place, int64_t key, int64_t count, const Scratch& scratch) const {
  const IndexerShape& shape = program_.shape;
  if (!rows_.k.paged() && program_.gather.form != KeyForm::kF32) {
    return {place.RowsOf(rows_.k).At(key), shape.dtype, shape.k.row};
  }
  std::iota(scratch.block, scratch.block + count, static_cast<int32_t>(key));
  return keys_.Gather(place, {scratch.block, static_cast<size_t>(count)}, scratch.gathered).rows.k;
}

void IndexerTile::ScoreHeadsAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const {
  const IndexerShape& shape = program_.shape;
  const HeadStrips& strips = program_.strips;
  const KeyPlace place = shape.Place(item.sequence);
  for (int64_t i = 0; i < item.rows.end - item.rows.begin; ++i) {
    const SparseToken token = Token(item, i);
    const float* weights = scratch.weights + i * shape.heads;
    const int64_t end = std::min(item.keys.end, shape.sequences.Limit(token));
    strips.Pack(shape.Heads(rows_.q, token), shape.d, scratch.panel);
    for (int64_t key = item.keys.begin; key < end; key += kBlockKeys) {
      const int64_t count = std::min(kBlockKeys, end - key);
      strips.Scores(KeyRows(place, key, count, scratch), count, scratch.panel, shape.d, false, scratch.tile);
      strips.SumHeads(program_.kernels, scratch.tile, count, weights, /*relu=*/true,
                      scores + i * program_.row_floats + key);
    }
  }
}

}  // namespace fa::ops
