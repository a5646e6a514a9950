// One tile of the forward: some 128 query rows against the key blocks they must visit, in transposed form.
//
//   for each key block:  for each strip of queries (along the vector lanes):
//     S^T[key][q]  = K (broadcast, natural rows) x Q^T panel           2 d flops a pair
//     passes: softcap, bias, masks                                      only where switched on, or on an edge
//     P^T = 2^(S^T - max), row sums, alpha                              online softmax, in registers
//     O^T[c][q]    = alpha O^T + V^T (broadcast, natural rows) x P^T    2 dv flops a pair
//   O = O^T / sum, transposed once a tile.
//
// Memory: K and V stream once a tile (from L2 for the strips after the first), S^T and P^T never leave the cache, Q is
// read and O written once. A block's keys are clipped per strip to the strip's own interval in steps of 8, so causal
// and window masks do no work outside it; only the two edges run a select.

#include "ops/forward_tile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

namespace fa::ops {
namespace {

using core::kernels::kMaskedScore;
using core::kernels::StripKernels;
using tiling::Interval;

constexpr float kMax = std::numeric_limits<float>::max();

struct Statistics {
  float max, sum, lse, multiplier;
  bool zero;
};

/// Ends the online softmax of one row: natural-log statistics and what the output state is multiplied by.
Statistics FinishRow(float row_max, float row_sum, float unit, int64_t sk, const float* sink) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (sk == 0) return {0, 0, -kInf, 0, true};
  if (std::isnan(row_sum)) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return {nan, nan, nan, nan, false};
  }
  const bool empty = row_max == -kInf;
  if (sink == nullptr) {
    if (empty) return {-kMax, kMax, -kInf, 0, true};
    const float max = row_max * unit;
    return {max, row_sum, max + std::log(row_sum), 1.0f / row_sum, false};
  }
  if (empty) return {*sink, 1, *sink, 0, true};
  const float own = row_max * unit, max = std::max(own, *sink);
  const float scale = std::exp(own - max), sum = row_sum * scale + std::exp(*sink - max);
  return {max, sum, max + std::log(sum), scale / sum, false};
}

void WriteStatistic(const MutableTensorView& tensor, const layout::Stats& where, int64_t b, int64_t n, int64_t row,
                    float value) {
  float* to = static_cast<float*>(tensor.data) + where.Offset(b, n, row);
  for (int64_t c = 0; c < where.copies; ++c) to[c * where.copy_stride] = value;
}

}  // namespace

const StripKernels& ForwardKernels(const core::kernels::KernelTable& table, const tiling::AttentionProblem& problem,
                                   int32_t sequence, int64_t rows) {
  const int64_t group_rows = problem.group() * problem.sequences[static_cast<size_t>(sequence)].sq;
  const StripKernels* few = table.ForFewRows(group_rows);
  return few != nullptr ? *few : table.ForRows(rows);
}

size_t PartStateFloats(int64_t rows, int64_t dv) {
  // Strips are 16 lanes or less, or fill whole strips of the widest.
  const int64_t lanes = rows <= 16 ? 16 : (rows + kMaxStripWidth - 1) / kMaxStripWidth * kMaxStripWidth;
  return static_cast<size_t>((lanes * (dv + 2) + 15) / 16 * 16);
}

ForwardTile::ForwardTile(const BoundAttention& bound, const tiling::ForwardPlan& plan,
                         const core::kernels::KernelTable& table, const AttentionArgs& args,
                         const ForwardBuffers& buffers, std::byte* workspace, const KeySource* keys,
                         const OutputQuantisation* quantisation)
    : bound_(bound),
      plan_(plan),
      table_(table),
      args_(args),
      buffers_(buffers),
      workspace_(workspace),
      quantisation_(quantisation),
      score_tile_(bound, table, args),
      panels_(bound, plan, table, args, workspace + buffers.slots, keys) {}

void ForwardTile::operator()(int32_t task, int worker) {
  const auto tiles = static_cast<int64_t>(plan_.items.size()), packs = static_cast<int64_t>(plan_.packs.size());
  if (task < tiles) {
    std::byte* memory = workspace_ + buffers_.scratch + static_cast<size_t>(worker) * buffers_.scratch_bytes;
    RunTile(plan_.items[static_cast<size_t>(task)],
            TileScratch::Carve(memory, bound_.problem, plan_.shape.block_q, plan_.shape.block_k, bound_.converts_keys(),
                               bound_.pse.compressed));
  } else if (task < tiles + packs) {
    panels_.Pack(plan_.packs[static_cast<size_t>(task - tiles)]);
  }
}

void ForwardTile::MakeStrips(const tiling::ForwardItem& item, const TileScratch& scratch,
                             StripArray<RunningStrip, kMaxStrips>& strips) const {
  const auto& problem = bound_.problem;
  const FoldedRows rows{item.sequence, item.head_begin, item.heads, item.row_begin, item.row_end};
  int64_t lane_base = 0;
  for (int64_t first = 0; first < rows.size();) {
    RunningStrip& strip = strips.Add(
        {MakeStrip(bound_, ForwardKernels(table_, bound_.problem, item.sequence, rows.size() - first), rows, first)});
    first += strip.lanes.count;
    const int64_t width = strip.lanes.width;
    strip.panel = scratch.panels + lane_base * (problem.d + problem.d_rope);
    strip.state = scratch.state + lane_base * problem.dv;
    strip.row_max = scratch.stats + 2 * lane_base;
    strip.row_sum = strip.row_max + width;
    std::fill_n(strip.row_max, width, kMaskedScore);
    std::fill_n(strip.row_sum, width, 0.0f);
    lane_base += width;
    if (!strip.hull.empty()) PackQueries(bound_, args_, score_tile_.passes().scale().q_multiplier, strip);
  }
}

void ForwardTile::RunTile(const tiling::ForwardItem& item, const TileScratch& scratch) const {
  StripArray<RunningStrip, kMaxStrips> strips;
  MakeStrips(item, scratch, strips);
  const int64_t count = strips.size();
  const int64_t block_k = plan_.shape.block_k;
  for (int64_t begin = item.keys.begin / block_k * block_k; begin < item.keys.end; begin += block_k) {
    const Interval block{std::max(begin, item.keys.begin / kKeyStep * kKeyStep),
                         std::min(begin + block_k, item.keys.end)};
    KeyRows rows = panels_.Block(item, block, *strips[0].kernels, scratch);
    for (int64_t s = 0; s < count; ++s) {
      VisitBlock(strips[s], block, rows, scratch);
      // The first strip has fetched the next block into L2; the others need not.
      rows.k.fetch_ahead = rows.k_rope.fetch_ahead = rows.v.fetch_ahead = 0;
    }
  }
  if (item.parts > 1 && !MergeParts(item, strips.data(), count)) return;
  for (int64_t s = 0; s < count; ++s) Finish(strips[s], scratch);
}

/// Leaves this part's state for the task that comes last, which adds them all up in the order of the parts; returns
/// whether this is the one. Nobody waits, and no bit depends on who comes last.
bool ForwardTile::MergeParts(const tiling::ForwardItem& item, RunningStrip* strips, int64_t count) const {
  const int64_t dv = bound_.problem.dv;
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
    const auto width = static_cast<size_t>(strips[s].lanes.width);
    std::fill_n(strips[s].row_max, width, kMaskedScore);
    std::fill_n(strips[s].row_sum, width, 0.0f);
    std::fill_n(strips[s].state, strips[s].kernels->rows * dv, 0.0f);
    strips[s].started = true;
  }
  for (int32_t part = 0; part < item.parts; ++part) {
    const float* from = part_of(part);
    for (int64_t s = 0; s < count; from += floats(strips[s++])) AddPart(from, strips[s]);
  }
  return true;
}

/// With m = max(own max, the part's): own *= 2^(own max - m), own += 2^(part's max - m) part.
void ForwardTile::AddPart(const float* part, RunningStrip& strip) const {
  const int64_t width = strip.lanes.width;
  const float *part_max = part, *part_sum = part + width;
  const float factor = score_tile_.passes().scale().exp2_factor;
  alignas(64) float own[kMaxStripWidth] = {}, other[kMaxStripWidth] = {};
  for (int64_t i = 0; i < width; ++i) {
    const float max = std::max(strip.row_max[i], part_max[i]);
    const float shift = max == kMaskedScore ? 0 : factor * max;  // -inf - -inf would be NaN
    own[i] = factor * strip.row_max[i] - shift;
    other[i] = factor * part_max[i] - shift;
    strip.row_max[i] = max;
  }
  table_.rows->exp2(own, width, own);
  table_.rows->exp2(other, width, other);
  for (int64_t i = 0; i < width; ++i) strip.row_sum[i] = own[i] * strip.row_sum[i] + other[i] * part_sum[i];
  strip.kernels->add_state(part + 2 * width, other, own, bound_.problem.dv, strip.state);
}

void ForwardTile::VisitBlock(RunningStrip& strip, Interval block, const KeyRows& rows,
                             const TileScratch& scratch) const {
  const Interval keys = strip.KeysIn(block);
  if (keys.empty()) return;
  const StripKernels& kernels = *strip.kernels;
  const ScorePasses& passes = score_tile_.passes();
  alignas(64) float block_max[kMaxStripWidth];
  alignas(64) float alpha[kMaxStripWidth];
  float* s = scratch.scores;
  const bool may_meet_masked = score_tile_.Fill(strip, keys, rows, scratch.bias, s, block_max, nullptr);
  const bool pairs = kernels.operands == core::kernels::Operands::kBF16Pairs;
  const auto softmax = pairs && !passes.has_dropout() ? kernels.softmax_pairs : kernels.softmax;
  softmax(s, keys.size(), passes.scale().exp2_factor, block_max, strip.row_max, strip.row_sum, alpha);
  if (passes.has_dropout()) {
    passes.Dropout(kernels, strip.lanes, keys.begin, keys.size(), s);
    if (pairs) kernels.pair_keys(s, keys.size(), s);
  }
  Product(strip, keys, may_meet_masked, rows, scratch, strip.started ? alpha : nullptr);
  strip.started = true;
}

/// O^T = alpha O^T + V^T P^T. A masked pair must not be multiplied when V is not finite (0 * NaN). Rather than scan V,
/// a block that holds masked pairs is multiplied as it is, and if the state then holds a non-finite value it is done
/// again from a copy, pair by pair, without the masked ones.
void ForwardTile::Product(const RunningStrip& strip, Interval keys, bool may_meet_masked, const KeyRows& rows,
                          const TileScratch& scratch, const float* alpha) const {
  const StripKernels& kernels = *strip.kernels;
  const int64_t dv = bound_.problem.dv, size = dv * kernels.rows;
  const size_t bytes = sizeof(float) * static_cast<size_t>(size);
  if (may_meet_masked && alpha != nullptr) std::memcpy(scratch.backup, strip.state, bytes);
  MultiplyRuns(kernels.product, strip, keys, rows, scratch.scores, alpha);
  if (!may_meet_masked || table_.rows->all_finite(strip.state, DType::kF32, size)) return;
  if (alpha != nullptr) std::memcpy(strip.state, scratch.backup, bytes);
  if (kernels.unpair_keys != nullptr) kernels.unpair_keys(scratch.scores, keys.size());
  score_tile_.MarkMasked(strip, keys, scratch.scores);
  MultiplyRuns(kernels.product_exact, strip, keys, rows, scratch.scores, alpha);
}

/// The product over keys whose values may lie in pages. Every further run goes on where the one before left off, which
/// gives the bits of one product over all.
void ForwardTile::MultiplyRuns(ProductKernel* product, const RunningStrip& strip, Interval keys, const KeyRows& rows,
                               const float* p, const float* alpha) const {
  alignas(64) static constexpr auto kOnes = [] {
    std::array<float, kMaxStripWidth> ones{};
    ones.fill(1);
    return ones;
  }();
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.VRunEnd(key, keys.end);
    product(rows.V(key), end - key, p + (key - keys.begin) * strip.lanes.width, bound_.problem.dv, alpha, strip.state);
    alpha = kOnes.data();
    key = end;
  }
}

void ForwardTile::Finish(const RunningStrip& strip, const TileScratch& scratch) const {
  const StripRows& lanes = strip.lanes;
  const auto& sequence = bound_.problem.sequences[static_cast<size_t>(lanes.sequence)];
  const auto* sinks = static_cast<const float*>(args_.sink.data);
  alignas(64) float multiplier[kMaxStripWidth] = {};
  alignas(64) int32_t zero[kMaxStripWidth] = {};
  for (int64_t i = 0; i < lanes.count; ++i) {
    const int64_t head = lanes.head[i], row = sequence.q_offset + lanes.row[i];
    const Statistics stats = FinishRow(strip.row_max[i], strip.row_sum[i], score_tile_.passes().scale().unit,
                                       sequence.sk, bound_.has_sink ? sinks + head : nullptr);
    multiplier[i] = stats.multiplier;
    zero[i] = stats.zero || !strip.started ? 1 : 0;
    if (bound_.has_max) WriteStatistic(args_.softmax_max, bound_.softmax_max, lanes.sequence, head, row, stats.max);
    if (bound_.has_sum) WriteStatistic(args_.softmax_sum, bound_.softmax_sum, lanes.sequence, head, row, stats.sum);
    if (bound_.has_lse) WriteStatistic(args_.lse, bound_.lse, lanes.sequence, head, row, stats.lse);
  }
  // The backup has served: it lies beside the state, and an int8 output is staged there.
  WriteOutputRows(bound_, args_, strip,
                  {.state = strip.state, .multiplier = multiplier, .zero = zero, .staging = scratch.backup},
                  quantisation_);
}

void WriteUnusedRows(const BoundAttention& bound, const AttentionArgs& args) {
  const auto element = static_cast<int64_t>(SizeOf(bound.out.dtype));
  const auto write = [&](int64_t b, Interval rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t n = 0; n < bound.problem.heads; ++n) {
        auto* out = static_cast<std::byte*>(args.out.data) + bound.out.Offset(b, n, row) * element;
        std::memset(out, 0, static_cast<size_t>(bound.problem.dv * element));
        if (bound.has_max) WriteStatistic(args.softmax_max, bound.softmax_max, b, n, row, 0);
        if (bound.has_sum) WriteStatistic(args.softmax_sum, bound.softmax_sum, b, n, row, 0);
        if (bound.has_lse) WriteStatistic(args.lse, bound.lse, b, n, row, 0);
      }
    }
  };
  write(0, {bound.tail_row_begin, bound.tail_row_end});
  if (bound.padded_rows == 0) return;
  for (size_t b = 0; b < bound.problem.sequences.size(); ++b) {
    write(static_cast<int64_t>(b), {bound.problem.sequences[b].sq, bound.padded_rows});
  }
}

}  // namespace fa::ops
