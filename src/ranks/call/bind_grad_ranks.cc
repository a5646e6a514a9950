#include "ranks/call/bind_grad_ranks.h"

#include <algorithm>
#include <utility>

#include "core/saturating.h"
#include "layout/bind_layout.h"
#include "ops/bind/argument_error.h"
#include "ranks/call/cut_rows.h"
#include "ranks/call/whole_call.h"

namespace fa::ops {
namespace {

using tiling::Interval;

Status WidenAll(const WholeTensors& tensors, Layout layout, AttentionGradArgs& whole) {
  const layout::Axes axes = layout::AxesOf(layout), out_axes = layout::AxesOf(layout::OutputLayout(layout));
  Status first;
  const auto widen = [&](const char* name, auto* tensor, const layout::Axes& of, bool queries, bool written) {
    MarkGivenWithoutRows(tensor, of.seq);
    const bool absent = tensor->data == nullptr && tensor->shape.empty();
    if (first.ok() && !absent) first = tensors.Widen(name, tensor, of, queries, written);
  };
  widen("q", &whole.q, axes, true, false);
  widen("k", &whole.k, axes, false, false);
  widen("v", &whole.v, axes, false, false);
  widen("q_rope", &whole.q_rope, axes, true, false);
  widen("k_rope", &whole.k_rope, axes, false, false);
  widen("out", &whole.out, out_axes, true, false);
  widen("d_out", &whole.d_out, out_axes, true, false);
  for (const auto& [name, tensor] :
       {std::pair{"softmax_max", &whole.softmax_max}, {"softmax_sum", &whole.softmax_sum}}) {
    const bool absent = tensor->data == nullptr && tensor->shape.empty();
    if (first.ok() && !absent) first = tensors.WidenStatistic(name, tensor, layout == Layout::kTND, false);
  }
  widen("dq", &whole.dq, axes, true, true);
  widen("dk", &whole.dk, axes, false, true);
  widen("dv", &whole.dv, axes, false, true);
  widen("dq_rope", &whole.dq_rope, axes, true, true);
  widen("dk_rope", &whole.dk_rope, axes, false, true);
  return first;
}

void UseOwnStrides(const AttentionGradArgs& args, Layout layout, BoundGradRanks& bound) {
  const layout::Axes axes = layout::AxesOf(layout), out_axes = layout::AxesOf(layout::OutputLayout(layout));
  BoundAttention& forward = bound.forward.whole;
  const tiling::AttentionProblem& problem = forward.problem;
  forward.q = layout::RowsOf(args.q, axes, problem.d);
  forward.k = layout::RowsOf(args.k, axes, problem.d);
  forward.v = layout::RowsOf(args.v, axes, problem.dv);
  forward.out = layout::RowsOf(args.out, out_axes, problem.dv);
  bound.d_out = layout::RowsOf(args.d_out, out_axes, problem.dv);
  bound.dq = layout::RowsOf(args.dq, axes, problem.d);
  bound.dk = layout::RowsOf(args.dk, axes, problem.d);
  bound.dv = layout::RowsOf(args.dv, axes, problem.dv);
  if (forward.has_rope) {
    forward.q_rope = layout::RowsOf(args.q_rope, axes, problem.d_rope);
    forward.k_rope = layout::RowsOf(args.k_rope, axes, problem.d_rope);
    bound.dq_rope = layout::RowsOf(args.dq_rope, axes, problem.d_rope);
    bound.dk_rope = layout::RowsOf(args.dk_rope, axes, problem.d_rope);
  }
  const bool packed = layout == Layout::kTND;
  forward.softmax_max = layout::StatsOf(args.softmax_max, packed);
  forward.softmax_sum = layout::StatsOf(args.softmax_sum, packed);
  forward.planned = KeepPlanned(TensorsOf(args));
}

/// Returns whether every sequence has one row or no keys. Then dpse is written directly, without sums.
bool HasOneRow(const tiling::AttentionProblem& problem) {
  return std::all_of(problem.sequences.begin(), problem.sequences.end(),
                     [](const tiling::Sequence& sequence) { return sequence.sq == 1 || sequence.sk == 0; });
}

/// Returns the layout of dpse if dpse is a sum over rows. If units have whole sequences, the backward program provides
/// the memory for these sums. Otherwise the caller of the program provides the memory.
PseRows SumsOfKeys(const BoundGradRanks& bound, bool whole_sequences) {
  PseRows sums = bound.dpse;
  sums.shared_batch = false;
  sums.sums = !whole_sequences;
  return sums;
}

}  // namespace

Result<BoundGradRanks> BindGradRanks(const AttentionGradArgs& args, const AttentionOptions& options,
                                     const SequenceShards& shards, int rank, int ranks) {
  FA_RETURN_IF_ERROR(CheckShards(shards, ranks));
  auto q = CutRows(shards, shards.sq, ranks);
  if (!q.ok()) return q.status();
  auto k = CutRows(shards, shards.sk, ranks);
  if (!k.ok()) return k.status();
  FA_RETURN_IF_ERROR(CheckTaken(args.drop_mask, args.pair_mask, args.sink, args.dsink));
  AttentionGradArgs whole = args;
  const WholeTensors tensors(*q, *k, rank);
  FA_RETURN_IF_ERROR(WidenAll(tensors, options.layout, whole));
  const ScoreArguments of_scores{args.q, args.pse, args.dpse, args.dense_mask, args.cu_q, args.cu_kv, options};
  auto scores = WidenScores(of_scores, tensors, &whole.pse, &whole.dpse, &whole.dense_mask);
  if (!scores.ok()) return scores.status();
  auto bound = BindAttentionGrad(whole, options);
  if (!bound.ok()) return bound.status();

  Result<BoundGradRanks> result{BoundGradRanks{}};
  BoundRanks& forward = result->forward;
  forward.whole = std::move(bound->forward);
  forward.rank = rank;
  forward.scores = std::move(*scores);
  forward.tails = OwnRows(*q, rank, {forward.whole.tail_row_begin, forward.whole.tail_row_end});
  result->key_tails = OwnRows(*k, rank, bound->unused_keys);
  forward.whole.tail_row_begin = forward.whole.tail_row_end = 0;
  result->has_dsink = bound->has_dsink;
  result->has_dslopes = bound->has_dslopes;
  result->has_dpse = bound->has_dpse;
  forward.whole.problem.one_pair_at_a_time = false;  // not needed, because units run one after another
  result->dslopes_batch_stride = bound->dslopes_batch_stride;
  result->dslopes_shared = bound->dslopes_shared;
  UseOwnStrides(args, options.layout, *result);
  tiling::RankCall& call = forward.call;
  call.problem = forward.whole.problem;
  call.packed = options.layout == Layout::kTND;
  call.q = std::move(*q);
  call.k = std::move(*k);
  call.backward = true;
  call.parameter_floats = tiling::ParameterFloats(result->has_dsink, result->has_dslopes, result->dslopes_shared,
                                                  std::ssize(call.problem.sequences));
  call.strategy = shards.strategy;
  call.heads_in_flight = shards.heads_in_flight;
  return result;
}

CallDescription Describe(const BoundGradRanks& bound, const AttentionOptions& options, const SequenceShards& shards) {
  CallDescription call = Describe(bound.forward, options, shards);
  call.Add("dslopes", bound.has_dslopes ? "given" : "none");
  call.Add("dpse", bound.has_dpse ? "given" : "none");
  call.Add("dsink", bound.has_dsink ? "given" : "none");
  return call;
}

Status UseForms(uint32_t forms, BoundGradRanks& bound) {
  BoundRanks& forward = bound.forward;
  FA_RETURN_IF_ERROR(UseForms(forms, forward));
  forward.call.rows_may_move = !forward.scores.rows_stay();
  if (!bound.has_dpse) return Status::Ok();
  const BoundAttention& whole = forward.whole;
  const WholeTensors shards(forward.call.q, forward.call.k, forward.rank);
  bound.dpse = PseOfRank(forward.scores.dpse, whole.pse, forward.scores.pse_forms, whole.problem, shards);
  forward.call.key_bias = HasKeyBias(bound);
  return Status::Ok();
}

int64_t FloatsOfBiasSums(const BoundGradRanks& bound) {
  if (!bound.has_dpse || !bound.dpse.shared_batch) return 0;
  const Dims& shape = bound.forward.scores.dpse.shape;
  return core::SaturatedProduct(shape[1], shape[2], shape[3]);
}

PseRows SumsOfBias(const BoundGradRanks& bound) {
  const Dims& shape = bound.forward.scores.dpse.shape;
  PseRows sums;
  sums.sums = true;
  sums.sequences.assign(bound.dpse.sequences.size(), {.offset = 0, .head = shape[2] * shape[3], .row = shape[3]});
  return sums;
}

BoundAttentionGrad BoundOfUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                               const StagedRows& keys, const StagedRows* queries) {
  BoundAttentionGrad part;
  part.forward = BoundOfUnit(bound.forward, plan, unit, keys, queries);
  const BoundAttention& forward = part.forward;
  part.dk = forward.k;
  part.dv = forward.v;
  part.dk_rope = forward.k_rope;
  if (queries != nullptr) {
    part.d_out = forward.out;
    part.dq = forward.q;
    part.dq_rope = forward.q_rope;
  } else {
    part.d_out = bound.d_out;
    part.dq = bound.dq;
    part.dq_rope = bound.dq_rope;
    part.d_out.batch = part.dq.batch = part.dq_rope.batch = 0;
  }
  if (bound.has_dpse) {
    part.has_dpse = true;
    part.dpse_of_one_row = bound.dpse.shared_rows && HasOneRow(bound.forward.whole.problem);
    part.dpse = bound.dpse.shared_rows    ? SumsOfKeys(bound, queries != nullptr)
                : bound.dpse.shared_batch ? SumsOfBias(bound)
                                          : bound.dpse;
    const tiling::RankCall& call = bound.forward.call;
    const Interval heads = unit.heads[static_cast<size_t>(bound.forward.rank)];
    part.dpse.sequences = PlacesOf(part.dpse, ComputedParts(call, plan, unit, bound.forward.rank),
                                   heads.begin * call.problem.group(), call.packed);
  }
  part.has_dslopes = bound.has_dslopes;
  part.has_dsink = bound.has_dsink;
  return part;
}

}  // namespace fa::ops
