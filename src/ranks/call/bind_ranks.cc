// This file turns the arguments of one rank into a bound call for all ranks together. First it replaces this rank's
// numbers of rows by the numbers of whole sequences. So masks, biases and errors refer to whole sequences. Then it uses
// the strides of the rank's own tensors.
#include "ranks/call/bind_ranks.h"

#include <string>
#include <utility>

#include "fa/version.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ops/bind/bind_parts.h"
#include "ranks/call/cut_rows.h"
#include "ranks/call/whole_call.h"

namespace fa::ops {
namespace {

using tiling::Interval;

Status WidenAll(const WholeTensors& tensors, Layout layout, AttentionArgs& whole) {
  const layout::Axes axes = layout::AxesOf(layout), out_axes = layout::AxesOf(layout::OutputLayout(layout));
  FA_RETURN_IF_ERROR(tensors.Widen("q", &whole.q, axes, true));
  FA_RETURN_IF_ERROR(tensors.Widen("k", &whole.k, axes, false));
  FA_RETURN_IF_ERROR(tensors.Widen("v", &whole.v, axes, false));
  MarkGivenWithoutRows(&whole.q_rope, axes.seq);
  MarkGivenWithoutRows(&whole.k_rope, axes.seq);
  if (whole.q_rope.data != nullptr) {
    FA_RETURN_IF_ERROR(tensors.Widen("q_rope", &whole.q_rope, axes, true));
  }
  if (whole.k_rope.data != nullptr) {
    FA_RETURN_IF_ERROR(tensors.Widen("k_rope", &whole.k_rope, axes, false));
  }
  FA_RETURN_IF_ERROR(tensors.Widen("out", &whole.out, out_axes, true, true));
  const bool packed = layout == Layout::kTND;
  const auto widen_statistic = [&](const char* name, MutableTensorView* tensor) {
    MarkGivenWithoutRows(tensor, packed ? 0 : 2);
    if (tensor->data == nullptr) return Status::Ok();
    return tensors.WidenStatistic(name, tensor, packed, true);
  };
  FA_RETURN_IF_ERROR(widen_statistic("softmax_max", &whole.softmax_max));
  FA_RETURN_IF_ERROR(widen_statistic("softmax_sum", &whole.softmax_sum));
  return widen_statistic("lse", &whole.lse);
}

void UseOwnStrides(const AttentionArgs& args, Layout layout, BoundAttention& bound) {
  const layout::Axes axes = layout::AxesOf(layout), out_axes = layout::AxesOf(layout::OutputLayout(layout));
  const tiling::AttentionProblem& problem = bound.problem;
  bound.q = layout::RowsOf(args.q, axes, problem.d);
  bound.k = layout::RowsOf(args.k, axes, problem.d);
  bound.v = layout::RowsOf(args.v, axes, problem.dv);
  bound.out = layout::RowsOf(args.out, out_axes, problem.dv);
  if (bound.has_rope) {
    bound.q_rope = layout::RowsOf(args.q_rope, axes, problem.d_rope);
    bound.k_rope = layout::RowsOf(args.k_rope, axes, problem.d_rope);
  }
  const bool packed = layout == Layout::kTND;
  if (bound.has_max) bound.softmax_max = layout::StatsOf(args.softmax_max, packed);
  if (bound.has_sum) bound.softmax_sum = layout::StatsOf(args.softmax_sum, packed);
  if (bound.has_lse) bound.lse = layout::StatsOf(args.lse, packed);
  bound.planned = KeepPlanned(TensorsOf(args));
}

/// Returns the size of `dimension` of a dense mask [B|1,N|1,Sq,Sk] that has only the rows of this rank's queries.
/// Returns 1 for other masks.
int64_t PlanesOf(const ScoreRows& scores, int dimension) {
  const Dims& shape = scores.dense_mask.shape;
  return scores.own_mask_rows && shape.rank() == 4 ? shape[dimension] : 1;
}

}  // namespace

Result<BoundRanks> BindRanks(const AttentionArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                             int rank, int ranks) {
  FA_RETURN_IF_ERROR(CheckShards(shards, ranks));
  auto q = CutRows(shards, shards.sq, ranks);
  if (!q.ok()) return q.status();
  auto k = CutRows(shards, shards.sk, ranks);
  if (!k.ok()) return k.status();
  FA_RETURN_IF_ERROR(CheckTaken(args.drop_mask, args.pair_mask, args.sink));
  AttentionArgs whole = args;
  const WholeTensors tensors(*q, *k, rank);
  FA_RETURN_IF_ERROR(WidenAll(tensors, options.layout, whole));
  const ScoreArguments of_scores{args.q, args.pse, {}, args.dense_mask, args.cu_q, args.cu_kv, options};
  auto scores = WidenScores(of_scores, tensors, &whole.pse, nullptr, &whole.dense_mask);
  if (!scores.ok()) return scores.status();
  auto bound = BindAttention(whole, options);
  if (!bound.ok()) return bound.status();

  Result<BoundRanks> result{BoundRanks{}};
  result->whole = std::move(*bound);
  UseOwnStrides(args, options.layout, result->whole);
  result->rank = rank;
  result->scores = std::move(*scores);
  result->tails = OwnRows(*q, rank, {result->whole.tail_row_begin, result->whole.tail_row_end});
  result->whole.tail_row_begin = result->whole.tail_row_end = 0;
  tiling::RankCall& call = result->call;
  call.problem = result->whole.problem;
  call.packed = options.layout == Layout::kTND;
  call.q = std::move(*q);
  call.k = std::move(*k);
  call.strategy = shards.strategy;
  call.heads_in_flight = shards.heads_in_flight;
  call.statistics = int64_t{result->whole.has_max} + int64_t{result->whole.has_sum} + int64_t{result->whole.has_lse};
  return result;
}

Status UseForms(uint32_t forms, BoundRanks& bound) {
  BoundAttention& whole = bound.whole;
  ScoreRows& scores = bound.scores;
  if (whole.has_pse) {
    scores.pse_forms = FormOf(forms);
    const WholeTensors shards(bound.call.q, bound.call.k, bound.rank);
    whole.pse = PseOfRank(scores.pse, whole.pse, scores.pse_forms, whole.problem, shards);
  }
  if (scores.own_mask_rows) whole.dense_mask = DenseMaskRows(scores.dense_mask, std::ssize(whole.problem.sequences));
  const auto strategy = StrategyWith(scores, bound.call.strategy);
  if (!strategy.ok()) return strategy.status();
  bound.call.strategy = *strategy;
  return Status::Ok();
}

CallDescription Describe(const BoundRanks& bound, const AttentionOptions& options, const SequenceShards& shards) {
  CallDescription call;
  const BoundAttention& whole = bound.whole;
  const tiling::AttentionProblem& problem = whole.problem;
  call.Add("version", FA_VERSION_STRING);
  call.Add("operator", bound.call.backward ? "FlashAttentionGrad" : "FlashAttention");
  call.Add("layout", Name(options.layout));
  call.Add("dtype", Name(problem.dtype));
  call.Add("batch", std::ssize(problem.sequences));
  call.Add("heads", problem.heads);
  call.Add("heads_kv", problem.heads_kv);
  call.Add("head size", problem.d);
  call.Add("head size of v", problem.dv);
  call.Add("head size of rope", problem.d_rope);
  call.Add("shards.sq", shards.sq);
  call.Add("shards.sk", shards.sk);
  call.Add("shards.cut", Name(shards.cut));
  call.Add("shards.strategy", tiling::Name(shards.strategy));
  call.Add("shards.heads_in_flight", shards.heads_in_flight);
  std::vector<int64_t> numbers;
  for (const auto& of_rank : shards.intervals) {
    for (const auto& interval : of_rank) numbers.insert(numbers.end(), {interval.begin, interval.end});
    numbers.push_back(-1);
  }
  call.Add("shards.intervals", numbers);
  call.Add("cu_q", whole.cu_q);
  call.Add("cu_kv", whole.cu_kv);
  call.Add("scale", Text(whole.scale));
  call.Add("mask.kind", static_cast<int64_t>(options.mask.kind()));
  call.Add("mask.pre", options.mask.pre());
  call.Add("mask.next", options.mask.next());
  call.Add("mask.sparse_mode", options.mask.sparse_mode());
  call.Add("mask.prefix", options.mask.prefix());
  call.Add("mask.row_begin", options.mask.row_begin());
  call.Add("mask.row_end", options.mask.row_end());
  call.Add("pse_type", static_cast<int64_t>(options.pse_type));
  call.Add("pse", whole.has_slopes || whole.has_pse ? "given" : "none");
  if (whole.has_pse) {
    call.Add("pse.dtype", Name(whole.pse.dtype));
    if (bound.scores.pse.shape.rank() == 4) call.Add("pse.shape[0]", bound.scores.pse.shape[0]);
  }
  if (whole.has_slopes) call.Add("pse.shape", Text(bound.scores.pse.shape));
  call.Add("dense_mask", whole.has_dense_mask ? "given" : "none");
  call.Add("dense_mask.shape[0]", PlanesOf(bound.scores, 0));
  call.Add("dense_mask.shape[1]", PlanesOf(bound.scores, 1));
  call.Add("sink", whole.has_sink ? "given" : "none");
  call.Add("softmax_max", whole.has_max ? "given" : "none");
  call.Add("softmax_sum", whole.has_sum ? "given" : "none");
  call.Add("lse", whole.has_lse ? "given" : "none");
  ForEachNumber([&](const char* name, auto, auto number) { call.Add(name, Text(number)); }, options);
  call.Add("dropout.seed", whole.has_philox ? std::to_string(whole.philox.seed) : "none");
  call.Add("dropout.offset", whole.has_philox ? std::to_string(whole.philox.offset) : "none");
  return call;
}

BoundAttention BoundOfUnit(const BoundRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                           const StagedRows& keys, const StagedRows* queries) {
  const BoundAttention& whole = bound.whole;
  const Interval heads = unit.heads[static_cast<size_t>(bound.rank)];
  const int64_t group = whole.problem.group();
  BoundAttention part = whole;
  part.planned.clear();
  part.cu_q.clear();
  part.cu_kv.clear();
  part.problem.heads = heads.size() * group;
  part.problem.heads_kv = heads.size();
  part.problem.sequences.clear();
  part.q_start.clear();
  part.kv_start.clear();
  part.dropout_offset.clear();
  const std::vector<tiling::RowPart> row_parts = ComputedParts(bound.call, plan, unit, bound.rank);
  const int64_t head = heads.begin * group;
  part.pse.sequences = whole.pse.compressed ? PlacesOfSequences(whole.pse, row_parts, head)
                                            : PlacesOf(whole.pse, row_parts, head, bound.call.packed);
  part.slopes.sequences = PlacesOf(whole.slopes, row_parts, head, bound.call.packed);
  part.dense_mask.sequences = bound.scores.own_mask_rows
                                  ? PlacesOf(whole.dense_mask, row_parts, head, bound.call.packed)
                                  : PlacesInWhole(whole.dense_mask, row_parts, head);
  for (const tiling::RowPart& row_part : row_parts) {
    const auto s = static_cast<size_t>(row_part.sequence);
    const tiling::Sequence& of_whole = whole.problem.sequences[s];
    const Interval rows = row_part.placed.rows;
    tiling::Sequence sequence = PartOf(of_whole, rows);
    sequence.q_offset = row_part.placed.at;
    // If this rank computes on staged queries, all keys of the sequence are staged. Otherwise only the keys that the
    // part's rows keep are staged.
    const Interval there = queries != nullptr ? Interval{0, sequence.sk} : sequence.rule.KeysOfRows({0, sequence.sq});
    sequence.k_offset = there.empty() ? 0 : keys.lead + keys.Place(of_whole.k_offset + there.begin) - there.begin;
    part.problem.sequences.push_back(std::move(sequence));
    part.q_start.push_back((whole.q_start.empty() ? 0 : whole.q_start[s]) + rows.begin);
    part.kv_start.push_back(whole.kv_start.empty() ? 0 : whole.kv_start[s]);
    if (!whole.has_philox) continue;
    part.dropout_offset.push_back(whole.dropout_offset[s] +
                                  (heads.begin * group * of_whole.sq + rows.begin) * of_whole.sk);
  }
  const auto staged = [](layout::Rows& rows, const StagedRows& where, int64_t columns) {
    rows.batch = 0;
    rows.row = columns;
    rows.head = where.rows * columns;
  };
  staged(part.k, keys, part.problem.d);
  staged(part.v, keys, part.problem.dv);
  if (part.has_rope) staged(part.k_rope, keys, part.problem.d_rope);
  part.problem.k_in_place = part.problem.v_in_place = part.problem.dtype == DType::kF32;
  part.q.batch = part.q_rope.batch = part.out.batch = 0;
  part.softmax_max.batch = part.softmax_sum.batch = part.lse.batch = 0;
  if (queries == nullptr) return part;
  staged(part.q, *queries, part.problem.d);
  staged(part.out, *queries, part.problem.dv);
  if (part.has_rope) staged(part.q_rope, *queries, part.problem.d_rope);
  for (layout::Stats* statistic : {&part.softmax_max, &part.softmax_sum, &part.lse}) {
    *statistic = {.batch = 0, .head = queries->rows, .row = 1, .copies = 1, .copy_stride = 0};
  }
  return part;
}

}  // namespace fa::ops
