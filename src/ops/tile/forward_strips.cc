#include "ops/tile/forward_strips.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/compressed/group_order.h"
#include "ops/tile/antiquant_rows.h"
#include "ops/tile/quantized_products.h"
#include "ops/tile/row_probability.h"
#include "tiling/forward/key_cut.h"

namespace fa::ops {
namespace {

using core::kernels::AttendArgs;
using core::kernels::kMaskedScore;
using core::kernels::StripKernels;
using tiling::Interval;

/// The keys per part in VisitWholeRows. Each part has sums of its own in f32, which are added in f64. So errors do not
/// grow with the number of keys, and bits do not depend on tiles.
constexpr int64_t kSummedKeys = 512;
static_assert(kSummedKeys % kKeyStep == 0);

/// Returns the lse of a row as the call wants it.
float Lse(const ForwardRows& rows, float lse) {
  return lse == -std::numeric_limits<float>::infinity() ? rows.lse_without_keys : lse;
}

/// Writes a statistic if the call has it.
void WriteStatistic(const layout::MutableStatsView& to, int64_t b, int64_t n, int64_t row, float value) {
  if (to.data != nullptr) to.Write(b, n, row, value);
}

/// Returns whether attend_compressed takes these scales, of heads with `columns` columns.
bool TakesNumbers(const Antiquants& of, int64_t columns) {
  static_assert(ForwardStrips::kAttendKeys * AttendArgs::kMostGroups <= kMostNumbers);
  if (!of.per_row || of.groups == 1) return true;
  return of.groups <= AttendArgs::kMostGroups && columns / of.groups % AttendArgs::kColumns == 0;
}

/// Lists addresses of rows that lie in runs, one run at a time. Past the last of `rows` rows, lists the last row again.
void ListRows(const layout::HeadRows& head, Interval keys, int64_t rows, const void** to) {
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t first = std::min(key, rows - 1);
    const int64_t end = key < rows ? std::min(keys.end, head.RunEnd(first, rows, 0)) : keys.end;
    const std::byte* at = head.At(first);
    const int64_t step = key < rows ? head.StrideAt(first) * static_cast<int64_t>(SizeOf(head.dtype)) : 0;
    for (; key < end; ++key, at += step) *to++ = at;
  }
}

}  // namespace

/// Ends the online softmax of one row.
/// @param with_lse  if false, lse is not computed, which saves a logarithm: a logarithm takes as long as the rest of
/// the function
[[gnu::always_inline]] inline ForwardStrips::Statistics ForwardStrips::FinishRow(float row_max, float row_sum,
                                                                                 float unit, bool no_keys,
                                                                                 const float* sink, bool with_lse) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr Statistics kSpoiled = {kNan, kNan, kNan, kNan, false};
  if (no_keys) return {0, 0, -kInf, 0, true};
  if (std::isnan(row_sum)) return kSpoiled;
  const bool empty = row_max == -kInf;
  if (sink == nullptr) {
    if (empty) return {kEmptyRowMax, kEmptyRowSum, -kInf, 0, true};
    const float max = row_max * unit;
    return {max, row_sum, with_lse ? max + std::log(row_sum) : 0, 1.0f / row_sum, false};
  }
  if (std::isnan(*sink)) return kSpoiled;
  if (empty) return {*sink, 1, *sink, 0, true};
  const float own = row_max * unit, max = std::max(own, *sink);
  const float scale = ExpBelow(own, max), sum = row_sum * scale + ExpBelow(*sink, max);
  if (std::isnan(sum)) return kSpoiled;
  return {max, sum, max + std::log(sum), scale / sum, false};
}

/// Does the part of FinishRow that the output needs, for calls without sinks, statistics and selected keys. The loop
/// has no branch, so all lanes are computed together. A row that saw no key has the maximum that Reset gave it.
void ForwardStrips::FinishPlainRows(const RunningStrip& strip, float* multiplier, int32_t* zero) {
  const int32_t unused = strip.started ? 0 : 1;
  for (int64_t i = 0; i < strip.lanes.width; ++i) {
    const float sum = strip.row_sum[i];
    const int32_t number = sum == sum, empty = number & int32_t{strip.row_max[i] == kMaskedScore};
    const float reciprocal = 1.0f / (sum + static_cast<float>(empty));  // a row without keys divides by 1
    multiplier[i] = number != 0 ? reciprocal : std::numeric_limits<float>::quiet_NaN();
    zero[i] = unused | empty;
  }
}

const StripKernels& StripFor(const core::kernels::KernelTable& table, int64_t rows, bool row_state) {
  const StripKernels& strip = table.ForRows(rows);
  return row_state ? table.WithRowState(strip) : strip;
}

void ForwardStrips::Open(const FoldedRows& rows, const StripKernels* few, const Interval* keys,
                         const TileScratch& scratch, Strips& strips, bool row_state) const {
  int64_t lane_base = 0;
  for (int64_t first = 0; first < rows.size();) {
    const StripKernels& kernels = few != nullptr ? *few : StripFor(table_, rows.size() - first, row_state);
    RunningStrip& strip = strips.Add({MakeStrip(problem_, kernels, rows, first)});
    if (keys != nullptr) strip.hull = strip.full = *keys;
    first += strip.lanes.count;
    const int64_t width = strip.lanes.width;
    strip.panel = scratch.panels + lane_base * (problem_.d + problem_.d_rope);
    strip.state = scratch.state + lane_base * problem_.dv;
    strip.row_max = scratch.stats + 2 * lane_base;
    strip.row_sum = strip.row_max + width;
    Reset(strip);
    lane_base += width;
    if (strip.hull.empty()) continue;
    if (rows_.quantized.used()) {
      PackQueriesOf8Bits(problem_, rows_, *table_.rows, scratch.queries, strip);
    } else {
      PackQueries(problem_, rows_.q, rows_.q_rope, score_tile_.passes().scale().q_multiplier, strip);
    }
  }
}

void ForwardStrips::VisitBlock(RunningStrip& strip, Interval block, const KeyRows& rows, const TileScratch& scratch,
                               float* raw_scores) const {
  const Interval keys = score_tile_.KeptKeys(strip, block);
  if (keys.empty()) return;
  const StripKernels& kernels = *strip.kernels;
  const ScorePasses& passes = score_tile_.passes();
  LaneArray<float> block_max;
  LaneArray<float> alpha;
  float* s = scratch.scores;
  const bool may_meet_masked = score_tile_.Fill(strip, keys, rows, scratch.bias, s, block_max, nullptr);
  if (raw_scores != nullptr) {
    std::memcpy(raw_scores, s, sizeof(float) * static_cast<size_t>(keys.size() * strip.lanes.width));
  }
  const float factor = passes.scale().exp2_factor;
  if (passes.has_dropout()) {
    KeepBits bits;
    kernels.softmax_dropout({s, keys.size(), factor, block_max, strip.row_max, strip.row_sum, alpha},
                            passes.DrawKeepBits(kernels, strip.lanes, keys.begin, keys.size(), bits));
  } else {
    kernels.softmax(s, keys.size(), factor, block_max, strip.row_max, strip.row_sum, alpha);
  }
  Product(strip, keys, may_meet_masked, rows, scratch, s, strip.started ? alpha.data() : nullptr);
  strip.started = true;
}

void ForwardStrips::VisitWholeRows(RunningStrip& strip, Interval hull, const KeyRows& rows,
                                   const TileScratch& scratch) const {
  const Interval keys = score_tile_.KeptKeys(strip, hull);
  if (keys.empty()) return;
  LaneArray<float> row_max, alpha;
  LaneArray<double> row_sum = {};
  float* s = scratch.scores;
  const int64_t width = strip.lanes.width;
  const bool may_meet_masked = score_tile_.Fill(strip, keys, rows, nullptr, s, row_max, nullptr);
  ScaleScores(problem_, rows_, *table_.rows, strip, keys.size(), s, row_max);
  const int64_t state = StateFloats(strip);
  double* total = scratch.totals;
  std::fill_n(total, state, 0.0);
  for (Interval part = keys; part.begin < keys.end; part.begin = part.end) {
    part.end = std::min((part.begin / kSummedKeys + 1) * kSummedKeys, keys.end);
    float* p = s + (part.begin - keys.begin) * width;
    Reset(strip);
    strip.kernels->softmax(p, part.size(), score_tile_.passes().scale().exp2_factor, row_max, strip.row_max,
                           strip.row_sum, alpha);
    for (int64_t i = 0; i < width; ++i) row_sum[i] += static_cast<double>(strip.row_sum[i]);
    RoundProbabilities(rows_.quantized, rows_.v.view.rows.dtype, p, part.size() * width);
    Product(strip, part, may_meet_masked, rows, scratch, p, nullptr);
    for (int64_t i = 0; i < state; ++i) total[i] += static_cast<double>(strip.state[i]);
  }
  for (int64_t i = 0; i < width; ++i) strip.row_sum[i] = static_cast<float>(row_sum[i]);
  for (int64_t i = 0; i < state; ++i) strip.state[i] = static_cast<float>(total[i]);
  strip.started = true;
}

int64_t ForwardStrips::AttendedEnd(const RunningStrip& strip, Interval keys) const {
  const ScorePasses& passes = score_tile_.passes();
  const DType dtype = rows_.k.view.rows.dtype;
  const bool attends = strip.kernels->AttendsTo(dtype, problem_.d, problem_.dv) && rows_.v.view.rows.dtype == dtype &&
                       problem_.d_rope == 0 && !passes.changes_scores() && !passes.inputs().has_dense_mask() &&
                       !passes.has_dropout() && TakesNumbers(rows_.k_antiquants, problem_.d) &&
                       TakesNumbers(rows_.v_antiquants, problem_.dv);
  if (!attends || keys.empty()) return keys.begin;
  // `attend` sums keys in another order than the other kernels. So the keys that `attend` takes must not depend on how
  // rows are cut into tiles. A tile that lacks rows of the sequence gets the bounds of a tile with all rows.
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.lanes.sequence)];
  Interval full = strip.full, visited = keys;
  if (sequence.kept_by_all) {
    const int64_t part_keys = tiling::KeysOfAPart(sequence.rule.sq, sequence.sk);
    const int64_t first = keys.begin / part_keys * part_keys;
    full = sequence.kept_by_all->full;
    const Interval& hull = sequence.kept_by_all->hull;
    visited = {std::max(hull.begin, first), std::min(hull.end, first + part_keys)};
  }
  if (full.begin > visited.begin || full.end <= visited.begin) return keys.begin;
  assert(visited.begin == keys.begin);  // all rows see the first key
  return full.end >= visited.end ? visited.end : std::max(full.end / kKeyStep * kKeyStep, visited.begin);
}

void ForwardStrips::Attend(RunningStrip& strip, Interval keys, int64_t head_kv, const KeyRows& rows,
                           bool brings) const {
  assert(!keys.empty() && keys.size() <= kAttendKeys && rows.k_runs.in_runs() == rows.v_runs.in_runs());
  AttendArgs args{.k = rows.K(keys.begin),
                  .v = rows.V(keys.begin),
                  .keys = keys.size(),
                  .panel = strip.panel,
                  .d = problem_.d,
                  .dv = problem_.dv,
                  .factor = score_tile_.passes().scale().exp2_factor,
                  .row_max = strip.row_max,
                  .row_sum = strip.row_sum,
                  .o = strip.state,
                  .started = strip.started,
                  .brings = brings};
  assert(strip.kernels->AttendsTo(args.k.dtype, args.d, args.dv) && args.v.dtype == args.k.dtype);
  // The addresses of rows in runs are listed. Otherwise every step of the kernel would end at the end of a run.
  constexpr int64_t kFetchAhead = AttendArgs::kMostStep;
  static_assert(kAttendKeys <= kJoinedRows);
  std::array<const void*, kAttendKeys + kFetchAhead> k, v;
  if (rows.k_runs.in_runs()) {
    const Interval listed{keys.begin, keys.end + kFetchAhead};
    ListRows(rows.k_runs, listed, rows.end, k.data());
    ListRows(rows.v_runs, listed, rows.end, v.data());
    args.k.fetch_ahead = args.v.fetch_ahead = kFetchAhead;
    args.k.rows = k.data();
    args.v.rows = v.data();
  }
  if (core::kernels::IsCompressed(args.k.dtype)) {
    float numbers[4 * kMostNumbers];
    const auto& few = strip.kernels->few_rows;
    const auto read = [&](const Antiquants& of, int64_t columns, float* to) {
      const bool in_place = TakesGroupsOfRows(few, args.k.dtype, rows_.q.rows.dtype, columns, columns / of.groups);
      return ReadAntiquants(of, *table_.rows, strip.lanes.sequence, head_kv, keys, columns, in_place, to);
    };
    args.k_numbers = read(rows_.k_antiquants, problem_.d, numbers);
    args.v_numbers = read(rows_.v_antiquants, problem_.dv, numbers + 2 * kMostNumbers);
    few.AttendTo(args.k.dtype, rows_.q.rows.dtype)(args);
  } else {
    strip.kernels->few_rows.attend(args);
  }
  strip.started = true;
}

/// O^T = alpha O^T + V^T P^T. A masked pair must not be multiplied if V is not finite. Scanning V would take time, so
/// all pairs are multiplied first. If a strip's state ends up not finite, the strip is computed again, block by block.
/// A block whose result is then still not finite is computed pair by pair, without the masked pairs.
void ForwardStrips::Product(RunningStrip& strip, Interval keys, bool may_meet_masked, const KeyRows& rows,
                            const TileScratch& scratch, float* s, const float* alpha) const {
  const StripKernels& kernels = *strip.kernels;
  if (!may_meet_masked || !strip.skips_masked) {
    strip.met_masked = strip.met_masked || may_meet_masked;
    return MultiplyRuns(kernels.product, strip, keys, rows, s, alpha);
  }
  const size_t bytes = sizeof(float) * static_cast<size_t>(StateFloats(strip));
  if (alpha != nullptr) std::memcpy(scratch.backup, strip.state, bytes);
  MultiplyRuns(kernels.product, strip, keys, rows, s, alpha);
  if (table_.rows->all_finite(strip.state, DType::kF32, StateFloats(strip))) return;
  if (alpha != nullptr) std::memcpy(strip.state, scratch.backup, bytes);
  if (kernels.pairs.unpair_keys != nullptr) kernels.pairs.unpair_keys(s, keys.size());
  score_tile_.MarkMasked(strip, keys, s);
  MultiplyRuns(kernels.product_exact, strip, keys, rows, s, alpha);
}

bool ForwardStrips::Restart(RunningStrip& strip) const {
  if (!strip.met_masked || table_.rows->all_finite(strip.state, DType::kF32, StateFloats(strip))) return false;
  Reset(strip);
  strip.started = strip.met_masked = false;
  strip.skips_masked = true;
  return true;
}

void ForwardStrips::Reset(const RunningStrip& strip) {
  std::fill_n(strip.row_max, strip.lanes.width, kMaskedScore);
  std::fill_n(strip.row_sum, strip.lanes.width, 0.0f);
}

/// Multiplies over keys whose values may lie in pages. Each run of rows adds to the state that the previous run left,
/// which gives the bits of one product over all keys.
void ForwardStrips::MultiplyRuns(ProductKernel* product, const RunningStrip& strip, Interval keys, const KeyRows& rows,
                                 const float* p, const float* alpha) const {
  for (int64_t key = keys.begin; key < keys.end;) {
    const int64_t end = rows.VRunEnd(key, keys.end);
    assert(strip.kernels->ProductTakes(rows.V(key).form(), rows.V(key).dtype));
    product(rows.V(key), end - key, p + (key - keys.begin) * strip.lanes.width, problem_.dv, alpha, strip.state);
    alpha = kUnitAlpha.data();
    key = end;
  }
}

void ForwardStrips::VisitBlockInFlight(RunningStrip& strip, Interval block, const KeyRows& rows,
                                       const TileScratch& scratch, BlockInFlight& flight, float* raw_scores) const {
  const Interval keys = score_tile_.KeptKeys(strip, block);
  if (keys.empty()) return;
  assert(!strip.skips_masked && !score_tile_.passes().has_dropout());
  const StripKernels& kernels = *strip.kernels;
  assert(rows.VRunEnd(keys.begin, keys.end) == keys.end);
  float *s = flight.scores_[flight.next_], *alpha = flight.alpha_[flight.next_];
  flight.next_ = 1 - flight.next_;
  LaneArray<float> block_max;
  [[maybe_unused]] const bool may_meet_masked = score_tile_.Fill(
      strip, keys, rows, scratch.bias, s, block_max, nullptr, flight.kernels_ != nullptr ? &flight.product_ : nullptr);
  assert(!may_meet_masked);
  if (raw_scores != nullptr) {
    std::memcpy(raw_scores, s, sizeof(float) * static_cast<size_t>(keys.size() * strip.lanes.width));
  }
  kernels.softmax(s, keys.size(), score_tile_.passes().scale().exp2_factor, block_max, strip.row_max, strip.row_sum,
                  alpha);
  flight.kernels_ = &kernels;
  flight.product_ = {.v = rows.V(keys.begin),
                     .keys = keys.size(),
                     .p = s,
                     .dv = problem_.dv,
                     .alpha = strip.started ? alpha : nullptr,
                     .o = strip.state};
  strip.started = true;
}

void ForwardStrips::EndFlight(BlockInFlight& flight) {
  if (flight.kernels_ == nullptr) return;
  const core::kernels::ProductArgs& last = flight.product_;
  flight.kernels_->product(last.v, last.keys, last.p, last.dv, last.alpha, last.o);
  flight.kernels_ = nullptr;
}

[[gnu::always_inline]] inline ForwardStrips::Statistics ForwardStrips::FinalStatistics(const RunningStrip& strip,
                                                                                       int64_t lane) const {
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.lanes.sequence)];
  const float* sink = SinkOf(strip, lane);
  // If all selected keys are masked, the row has no keys.
  const bool no_keys = sequence.sk == 0 || (rows_.selected_keys && sink == nullptr && strip.row_sum[lane] == 0);
  return FinishRow(strip.row_max[lane], strip.row_sum[lane], score_tile_.passes().scale().unit, no_keys, sink,
                   rows_.lse.data != nullptr);
}

ForwardStrips::Statistics ForwardStrips::ToldStatistics(const RunningStrip& strip, int64_t lane) const {
  const auto& sequence = problem_.sequences[static_cast<size_t>(strip.lanes.sequence)];
  const float* sink = SinkOf(strip, lane);
  const float unit = score_tile_.passes().scale().unit, largest = strip.largest[lane], reference = strip.row_max[lane];
  const float rescaling = largest > reference ? std::exp((reference - largest) * unit) : 1;
  return FinishRow(largest, strip.whole_sum[lane] * rescaling, unit, sequence.sk == 0, sink, true);
}

float ForwardStrips::Shift(const RunningStrip& strip, int64_t lane) const {
  const Statistics stats = FinalStatistics(strip, lane);
  return RowShift(stats.max, stats.sum);
}

void ForwardStrips::Finish(const RunningStrip& strip, const TileScratch& scratch) const {
  const StripRows& lanes = strip.lanes;
  const auto& sequence = problem_.sequences[static_cast<size_t>(lanes.sequence)];
  LaneArray<float> multiplier = {};
  LaneArray<int32_t> zero = {};
  const bool writes_statistics =
      rows_.softmax_max.data != nullptr || rows_.softmax_sum.data != nullptr || rows_.lse.data != nullptr;
  if (writes_statistics || rows_.sink.data != nullptr || rows_.selected_keys) {
    for (int64_t i = 0; i < lanes.count; ++i) {
      const int64_t head = lanes.head[i], row = sequence.q_offset + lanes.row[i];
      const Statistics stats = FinalStatistics(strip, i);
      multiplier[i] = stats.multiplier;
      zero[i] = stats.zero || !strip.started ? 1 : 0;
      if (!writes_statistics) continue;
      const Statistics told = strip.largest != nullptr ? ToldStatistics(strip, i) : stats;
      WriteStatistic(rows_.softmax_max, lanes.sequence, head, row, told.max);
      WriteStatistic(rows_.softmax_sum, lanes.sequence, head, row, told.sum);
      WriteStatistic(rows_.lse, lanes.sequence, head, row, Lse(rows_, told.lse));
    }
  } else {
    FinishPlainRows(strip, multiplier, zero);
  }
  if (rows_.quantized.used()) {
    const QuantizedProducts& by = rows_.quantized;
    constexpr float kLeast = 0x1p-10f;  // with this factor or a smaller one, all probabilities are rounded to 0
    for (int64_t i = 0; i < lanes.count; ++i) {
      const int64_t head_kv = lanes.head[i] / problem_.group();
      const double of_values = ScaleOfHead(by, rows_.v_antiquants, *table_.rows, lanes.sequence, head_kv, problem_.dv);
      const double scaled = static_cast<double>(multiplier[i]) * of_values / static_cast<double>(by.p_factor);
      multiplier[i] = by.p_factor <= kLeast ? 0.0f : static_cast<float>(scaled);
    }
  }
  // An int8 output is staged in the memory of the backup, which lies next to the state and is no longer needed.
  WriteOutputRows(rows_.out, problem_.dv, sequence.q_offset, strip,
                  {.state = strip.state, .multiplier = multiplier, .zero = zero, .staging = scratch.backup},
                  quantization_);
}

void WriteUnusedRows(const tiling::AttentionProblem& problem, const ForwardRows& rows, int64_t b, Interval unused) {
  const float lse = rows.lse_without_keys > 0 ? rows.lse_without_keys : 0;
  for (int64_t row = unused.begin; row < unused.end; ++row) {
    for (int64_t n = 0; n < problem.heads; ++n) {
      rows.out.Clear(b, n, row, problem.dv);
      WriteStatistic(rows.softmax_max, b, n, row, 0);
      WriteStatistic(rows.softmax_sum, b, n, row, 0);
      WriteStatistic(rows.lse, b, n, row, lse);
    }
  }
}

void WriteUnusedRows(const tiling::AttentionProblem& problem, const ForwardRows& rows) {
  const auto write = [&](int64_t b, Interval unused) { WriteUnusedRows(problem, rows, b, unused); };
  write(0, rows.unused_rows);
  if (rows.padded_rows == 0) return;
  for (size_t b = 0; b < problem.sequences.size(); ++b) {
    const tiling::Sequence& sequence = problem.sequences[b];
    write(static_cast<int64_t>(b), {rows.first_row, sequence.q_offset});
    write(static_cast<int64_t>(b), {sequence.q_offset + sequence.sq, rows.first_row + rows.padded_rows});
  }
}

}  // namespace fa::ops
