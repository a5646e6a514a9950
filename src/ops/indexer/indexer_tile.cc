// Computes score(t, s) = sum over heads of w ReLU(q.k), then calls the TokenStep of the run on a query token's row of
// scores. Products of a token's heads with a strip of keys are summed over the heads while they lie in L1. So only S2
// scores per token are stored, not S2 x heads products.
//
// With many tokens, keys lie along the lanes. Keys are packed once per group of tokens, and q is broadcast. The tile
// unit's loop `head_tiles` takes q as tiles. With one or two tokens, packing would take 20 % of the time of a token's
// products. So heads lie along the lanes, and keys are broadcast. The bits are the same in all cases.

#include "ops/indexer/indexer_tile.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/integer.h"
#include "core/run/executor.h"
#include "core/saturating.h"
#include "ops/tile/strip.h"
#include "tiling/sparse/make_indexer_plan.h"

namespace fa::ops {
namespace {

using core::RoundUp;
using core::kernels::RowBlock;
using core::kernels::TileAttendArgs;
using core::kernels::TileHeadArgs;
using core::kernels::TileHeadToken;

// With at least this many tokens, packing keys pays.
constexpr int64_t kManyTokens = 3;

int64_t OperandBytes(const IndexerProgram& program) { return static_cast<int64_t>(SizeOf(program.operand)); }

/// Multiplies scores by the scales of their keys, if keys have scales.
void ScaleScores(const float* scales, int64_t count, float* scores) {
  if (scales == nullptr) return;
  for (int64_t i = 0; i < count; ++i) scores[i] *= scales[i];
}

/// Returns whether the loop of the tile unit scores keys in this call. The loop adds the heads of each key.
bool Loops(const IndexerShape& shape, const core::kernels::KernelTable& table) {
  const auto many = [](const tiling::SparseSequence& sequence) { return sequence.sq >= kManyTokens; };
  return std::ranges::any_of(shape.sequences.list, many) && table.rows->attends_tiles && table.pairs() &&
         shape.score_block == 0 && shape.heads > 0 && shape.d > 0 && shape.heads % TileHeadArgs::kHeads == 0 &&
         shape.d % TileAttendArgs::kColumns == 0;
}

/// Returns the floats of a token's queries as tiles.
int64_t HeadTileFloats(const IndexerShape& shape) { return core::SaturatedProduct(shape.heads, shape.d / 2); }

/// Multiplies the products of each key, with heads along the lanes, by the key's scale, if keys have scales.
void ScaleRows(const float* scales, int64_t keys, const HeadStrips& strips, float* products) {
  if (scales == nullptr) return;
  for (int64_t row = 0; row < strips.strips() * keys; ++row, products += strips.width()) {
    const float scale = scales[row % keys];
    for (int64_t lane = 0; lane < strips.width(); ++lane) products[lane] *= scale;
  }
}

// The number of keys of a tile if heads lie along the lanes. With 64 heads the tile takes 16 KB, half of L1.
constexpr int64_t kBlockKeys = 64;
static_assert(kBlockKeys % 2 == 0, "GatherShape::block is even: kernels of pairs take keys two by two");
static_assert(kMaxStripWidth <= kBlockKeys, "quantised keys of a strip are gathered as one block");

}  // namespace

IndexerProgram::IndexerProgram(const IndexerShape& bound_shape, const core::kernels::KernelTable& table_of_type,
                               const tiling::Machine& machine, size_t bytes_of_step, tiling::WorkspacePlan& workspace)
    : shape(bound_shape),
      table(table_of_type),
      kernels(core::kernels::IndexerKernelsFor(table.isa)),
      strips(table, shape.heads),
      widens(shape.q_quantized || KeyFormOf(table.widest(), shape.dtype) == KeyForm::kF32),
      operand(table.pairs() ? DType::kBF16 : DType::kF32),
      loops(Loops(shape, table)),
      gather{.dtype = shape.dtype,
             .form = shape.quantized ? WidenedFormOf(strips.kernels(), shape.dtype)
                                     : KeyFormOf(strips.kernels(), shape.dtype),
             .d = shape.d,
             .block = kBlockKeys,
             .quantized = shape.quantized},
      // Parts of keys begin at block boundaries. So each block lies in one part, and one task computes its maximum.
      plan(tiling::MakeIndexerPlan(shape.sequences, shape.heads, shape.d,
                                   shape.score_block > 0 ? std::lcm(KeyWidth(), shape.score_block) : KeyWidth(),
                                   machine)),
      row_floats(shape.score_block > 0 ? core::SaturatedProduct(shape.heads, shape.BlocksPerHead())
                                       : RoundUp(shape.sequences.max_sk, KeyWidth())),
      step_bytes(bytes_of_step),
      scratch_bytes(IndexerTile::ScratchBytes(*this)),
      run_state(workspace.Book("run state", core::RunStateBytes(plan.graph))),
      scratch(workspace.Book("scores and results of the groups in flight", scratch_bytes, plan.graph.workers())),
      scores(workspace.Book("scores of all tokens", static_cast<size_t>(row_floats) * sizeof(float),
                            plan.cut ? shape.sequences.tokens : 0)) {}

std::vector<std::string> IndexerProgram::KernelNames() const {
  return {std::string(table.widest().name) + (loops ? "_head_tiles" : ""), strips.kernels().name, kernels.name};
}

IndexerTile::Scratch::Scratch(Carver& carver, const IndexerProgram& program)
    : scores(carver.Floats(program.plan.cut ? 0 : program.plan.group * program.row_floats)),
      panel(carver.Floats(std::max(program.table.widest().PanelRows(program.shape.d) * program.KeyWidth(),
                                   program.strips.PanelFloats(program.shape.d)))),
      queries(carver.Array<std::byte>(program.widens ? program.plan.group : 0, program.shape.heads, program.shape.d,
                                      static_cast<int64_t>(SizeOf(program.operand)))),
      weights(carver.Floats(program.plan.group, program.shape.heads)),
      scales(carver.Floats(program.shape.quantized ? std::max(program.shape.heads, kBlockKeys) : 0)),
      tile(carver.Floats(std::max(core::SaturatedProduct(program.shape.heads, program.KeyWidth()),
                                  core::SaturatedProduct(kBlockKeys, program.strips.lanes())))),
      head_tiles(carver.Floats(program.loops ? program.plan.group : 0, HeadTileFloats(program.shape))),
      loop(carver.Array<char>(program.loops ? TileHeadArgs::kMemoryBytes : 0)),
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
  if (program_.shape.score_block > 0) {
    for (int64_t i = 0; i < tokens; ++i) MaximaOf(i, scores).Start(program_.shape.heads, item.keys);
  }
  if (tokens >= kManyTokens) {
    ScoreKeysAlongLanes(item, scratch, scores);
  } else {
    ScoreHeadsAlongLanes(item, scratch, scores);
  }
  if (program_.plan.cut) return;
  for (int64_t i = 0; i < tokens; ++i) step_(Token(item, i), scores + i * row_floats, scratch.step);
}

/// Converts the tokens' weights to f32. Widens queries that the kernels cannot read. Queries of one or two tokens are
/// widened only if they are quantised, because packing them for the lanes converts any other type.
void IndexerTile::ReadTokens(const tiling::IndexerItem& item, const Scratch& scratch) const {
  const IndexerShape& shape = program_.shape;
  const int64_t tokens = item.rows.end - item.rows.begin;
  for (int64_t i = 0; i < tokens; ++i) {
    const SparseToken token = Token(item, i);
    if (shape.score_block == 0) ReadScaledWeights(token, scratch, scratch.weights + i * shape.heads);
    if (program_.widens && (tokens >= kManyTokens || shape.q_quantized)) {
      WidenQueries(token, scratch, scratch.queries + i * shape.heads * shape.d * OperandBytes(program_));
    }
    if (!program_.loops || tokens < kManyTokens) continue;
    program_.table.rows->pack_key_tiles(QueriesOf(item, i, scratch), shape.heads, shape.d, HeadTiles(i, scratch),
                                        HeadTileFloats(shape) / (shape.heads / TileHeadArgs::kHeads));
  }
}

void IndexerTile::ReadScaledWeights(const SparseToken& token, const Scratch& scratch, float* weights) const {
  const IndexerShape& shape = program_.shape;
  shape.ReadWeights(*program_.table.rows, rows_.weights, token, weights);
  if (!shape.q_quantized) return;
  shape.ReadWeights(*program_.table.rows, rows_.q_scale, token, scratch.scales);
  for (int64_t head = 0; head < shape.heads; ++head) weights[head] *= scratch.scales[head];
}

void IndexerTile::WidenQueries(const SparseToken& token, const Scratch& scratch, std::byte* to) const {
  const IndexerShape& shape = program_.shape;
  const auto& kernels = *program_.table.rows;
  const RowBlock heads = shape.Heads(rows_.q, token);
  if (!shape.q_quantized) {
    return kernels.widen(heads, shape.heads, shape.d, reinterpret_cast<float*>(to), shape.d);
  }
  const auto* from = static_cast<const std::byte*>(heads.data);
  const QuantizedRow stored{.dtype = shape.q_stored, .columns = shape.d};  // keys may have another type
  for (int64_t head = 0; head < shape.heads; ++head, from += heads.stride, to += shape.d * OperandBytes(program_)) {
    WidenRow(kernels, stored, from, shape.d, scratch.gathered.widening, program_.operand, to);
  }
}

RowBlock IndexerTile::QueriesOf(const tiling::IndexerItem& item, int64_t i, const Scratch& scratch) const {
  const IndexerShape& shape = program_.shape;
  const bool widened = program_.widens && (shape.q_quantized || item.rows.size() >= kManyTokens);
  if (!widened) return shape.Heads(rows_.q, Token(item, i));
  return {scratch.queries + i * shape.heads * shape.d * OperandBytes(program_), program_.operand, shape.d};
}

/// Returns the queries of token i of an item as tiles.
float* IndexerTile::HeadTiles(int64_t i, const Scratch& scratch) const {
  return scratch.head_tiles + i * HeadTileFloats(program_.shape);
}

BlockMaxima IndexerTile::MaximaOf(int64_t i, float* scores) const {
  const IndexerShape& shape = program_.shape;
  return {.maxima = scores + i * program_.row_floats, .block_size = shape.score_block, .blocks = shape.BlocksPerHead()};
}

const float* IndexerTile::KeyScales(const KeyPlace& place, int64_t key, int64_t count, const Scratch& scratch) const {
  if (rows_.k_scale.view.data == nullptr) return nullptr;
  const layout::HeadRows scales = place.RowsOf(rows_.k_scale);
  for (int64_t at = key; at < key + count;) {
    const int64_t end = scales.stride == 1 ? scales.RunEnd(at, key + count, 0) : at + 1;
    program_.table.rows->widen({scales.At(at), scales.dtype, end - at}, 1, end - at, scratch.scales + at - key,
                               end - at);
    at = end;
  }
  return scratch.scales;
}

/// Scores the packed keys from `key` on for all tokens of an item, by the loop of the tile unit.
void IndexerTile::AddHeads(const tiling::IndexerItem& item, const Scratch& scratch, int64_t key, float* scores) const {
  const IndexerShape& shape = program_.shape;
  std::array<TileHeadToken, tiling::kMostIndexerGroup> tokens;
  int64_t count = 0;
  for (int64_t i = 0; i < item.rows.size(); ++i) {
    if (shape.sequences.Limit(Token(item, i)) <= key) continue;
    tokens[static_cast<size_t>(count++)] = {.heads = reinterpret_cast<const char*>(HeadTiles(i, scratch)),
                                            .weight = scratch.weights + i * shape.heads,
                                            .sum = scores + i * program_.row_floats + key,
                                            .end = shape.heads / TileHeadArgs::kHeads};
  }
  program_.table.widest().tile_loops->add_heads(
      {.panel = scratch.panel, .d = shape.d, .strips = tokens.data(), .strip_count = count, .memory = scratch.loop});
}

void IndexerTile::ScoreKeysAlongLanes(const tiling::IndexerItem& item, const Scratch& scratch, float* scores) const {
  const IndexerShape& shape = program_.shape;
  const core::kernels::StripKernels& kernels = program_.table.widest();
  const KeyPlace place = shape.Place(item.sequence);
  const layout::HeadRows keys = place.RowsOf(rows_.k);
  const int64_t tokens = item.rows.end - item.rows.begin;
  for (int64_t key = item.keys.begin; key < item.keys.end; key += kernels.width) {
    LaneArray<const void*> rows;
    const int64_t count = std::min(kernels.width, item.keys.end - key);
    DType dtype = shape.dtype;
    if (shape.quantized) {
      const RowBlock widened = KeyRows(place, key, count, scratch);
      dtype = widened.dtype;
      const int64_t row_bytes = widened.stride * static_cast<int64_t>(SizeOf(dtype));
      const auto* row = static_cast<const std::byte*>(widened.data);
      for (int64_t lane = 0; lane < count; ++lane, row += row_bytes) rows[lane] = row;
    } else {
      for (int64_t lane = 0; lane < count; ++lane) rows[lane] = keys.At(key + lane);
    }
    kernels.pack_queries({rows, dtype, count}, shape.d, 1, scratch.panel);
    const float* scales = KeyScales(place, key, count, scratch);
    if (program_.loops) AddHeads(item, scratch, key, scores);
    for (int64_t i = 0; i < tokens; ++i) {
      const SparseToken token = Token(item, i);
      if (shape.sequences.Limit(token) <= key) continue;
      float* sums = scores + i * program_.row_floats + key;
      if (program_.loops) {
        ScaleScores(scales, count, sums);
        continue;
      }
      kernels.scores(QueriesOf(item, i, scratch), shape.heads, scratch.panel, shape.d, false, scratch.tile, nullptr);
      if (shape.score_block > 0) {
        for (int64_t n = 0; n < shape.heads; ++n) ScaleScores(scales, count, scratch.tile + n * kernels.width);
        const int64_t end = std::min(key + count, shape.sequences.Limit(token));
        MaximaOf(i, scores).TakeKeysAlongLanes(scratch.tile, shape.heads, kernels.width, {key, end});
        continue;
      }
      program_.kernels.add_heads(scratch.tile, shape.heads, kernels.width, scratch.weights + i * shape.heads, false,
                                 sums);
      ScaleScores(scales, count, sums);
    }
  }
}

/// Returns `count` rows of keys for the kernels: in place if they are evenly spaced, otherwise copied next to each
/// other.
RowBlock IndexerTile::KeyRows(const KeyPlace& place, int64_t key, int64_t count, const Scratch& scratch) const {
  const IndexerShape& shape = program_.shape;
  if (!rows_.k.paged() && program_.gather.form != KeyForm::kF32 && !shape.quantized) {
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
    strips.Pack(QueriesOf(item, i, scratch), shape.d, scratch.panel);
    for (int64_t key = item.keys.begin; key < end; key += kBlockKeys) {
      const int64_t count = std::min(kBlockKeys, end - key);
      strips.Scores(KeyRows(place, key, count, scratch), count, scratch.panel, shape.d, false, scratch.tile);
      if (shape.score_block > 0) {
        ScaleRows(KeyScales(place, key, count, scratch), count, strips, scratch.tile);
        MaximaOf(i, scores).TakeHeadsAlongLanes(strips, scratch.tile, {key, key + count});
        continue;
      }
      strips.SumHeads(program_.kernels, scratch.tile, count, weights, /*relu=*/true,
                      scores + i * program_.row_floats + key);
      ScaleScores(KeyScales(place, key, count, scratch), count, scores + i * program_.row_floats + key);
    }
  }
}

}  // namespace fa::ops
