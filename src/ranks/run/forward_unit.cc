#include "ranks/run/forward_unit.h"

#include <utility>

namespace fa::ops {

ForwardUnit::ForwardUnit(const BoundRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                         const Context& context)
    : UnitTensors(bound.call, plan, unit, bound.rank), bound_(bound) {
  BoundAttention part = BoundOfUnit(bound, plan, unit, keys_, staged_queries_ ? &queries_ : nullptr);
  AddTensors(part);
  in_ = MessagesIn(bound.call, plan, unit, bound.rank, queries_, keys_, in_from_);
  if (staged_queries_) back_ = MessagesBack(bound.call, plan, unit, bound.rank, queries_, keys_, back_from_);
  if (!part.problem.sequences.empty() && !heads_.empty()) {
    program_ = std::make_unique<const ForwardProgram>("forward", context, std::move(part));
  }
}

void ForwardUnit::AddTensors(const BoundAttention& part) {
  using Args = AttentionArgs;
  const BoundAttention& whole = bound_.whole;
  const tiling::AttentionProblem& problem = whole.problem;
  Bring(&Args::k, Key(problem.d), whole.k, part.k);
  Bring(&Args::v, Key(problem.dv), whole.v, part.v);
  if (whole.has_rope) Bring(&Args::k_rope, Key(problem.d_rope), whole.k_rope, part.k_rope);
  if (!staged_queries_) return;
  Bring(&Args::q, Query(problem.d), whole.q, part.q);
  if (whole.has_rope) Bring(&Args::q_rope, Query(problem.d_rope), whole.q_rope, part.q_rope);
  TakeBack(&Args::out, Query(problem.dv), part.out, whole.out, queries_.rows);
  const auto take_statistic = [&](bool present, Output tensor, const layout::Stats& from, const layout::Stats& to) {
    RowTensor shape = Query(1);
    shape.copies = to.copies;
    shape.copy_stride = to.copy_stride;
    if (present) TakeBack(tensor, shape, RowsOfStatistic(from), RowsOfStatistic(to), queries_.rows);
  };
  take_statistic(whole.has_max, &Args::softmax_max, part.softmax_max, whole.softmax_max);
  take_statistic(whole.has_sum, &Args::softmax_sum, part.softmax_sum, whole.softmax_sum);
  take_statistic(whole.has_lse, &Args::lse, part.lse, whole.lse);
}

AttentionArgs ForwardUnit::UnitArgs(const AttentionArgs& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.whole;
  AttentionArgs part = StagedArgs(args, staged);
  if (whole.has_sink) MoveToUnit(part.sink);
  if (staged_queries_) return part;
  MoveToUnit(part.q, whole.q);
  if (whole.has_rope) MoveToUnit(part.q_rope, whole.q_rope);
  MoveToUnit(part.out, whole.out);
  if (whole.has_max) MoveToUnit(part.softmax_max, RowsOfStatistic(whole.softmax_max));
  if (whole.has_sum) MoveToUnit(part.softmax_sum, RowsOfStatistic(whole.softmax_sum));
  if (whole.has_lse) MoveToUnit(part.lse, RowsOfStatistic(whole.lse));
  return part;
}

}  // namespace fa::ops
