#include "ranks/run/forward_unit.h"

#include <utility>

#include "layout/rows_view.h"
#include "tiling/row_cut.h"

namespace fa::ops {
namespace {

using tiling::RowAxis;

}  // namespace

ForwardUnit::ForwardUnit(const BoundRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                         const Context& context)
    : bound_(bound),
      heads_(unit.heads[static_cast<size_t>(bound.rank)]),
      batch_(bound.call.packed ? 0 : unit.sequences.begin),
      staged_queries_(plan.strategy == SequenceShards::Strategy::kHeads),
      queries_(NeededRows(bound.call, plan, unit, bound.rank, RowAxis::kQuery), 0),
      keys_(NeededRows(bound.call, plan, unit, bound.rank, RowAxis::kKey), tiling::kKeyStep) {
  BoundAttention part = BoundOfUnit(bound, plan, unit, keys_, staged_queries_ ? &queries_ : nullptr);
  AddTensors(bound, part, staged_queries_);
  in_ = MessagesIn(bound.call, plan, unit, bound.rank, queries_, keys_, in_from_);
  if (staged_queries_) back_ = MessagesBack(bound.call, plan, unit, bound.rank, queries_, keys_, back_from_);
  if (!part.problem.sequences.empty() && !heads_.empty()) {
    program_ = std::make_unique<const ForwardProgram>("forward", context, std::move(part));
  }
}

void ForwardUnit::AddTensors(const BoundRanks& bound, const BoundAttention& part, bool whole_heads) {
  const BoundAttention& whole = bound.whole;
  const tiling::AttentionProblem& problem = whole.problem;
  const int64_t group = problem.group();
  const auto book = [&](const RowTensor& staged) {
    const size_t at = staged_bytes_;
    const int64_t rows = staged.axis == RowAxis::kQuery ? queries_.rows : keys_.rows;
    staged_bytes_ += AlignedBytes(heads_.size() * staged.HeadBytes(rows));
    return at;
  };
  const auto bring = [&](RowAxis axis, int64_t columns, const layout::Rows& from, const layout::Rows& to) {
    const int64_t heads = axis == RowAxis::kQuery ? group : 1;
    in_from_.push_back({.axis = axis, .heads_per_kv = heads, .columns = columns, .rows = from});
    in_to_.push_back({.axis = axis, .heads_per_kv = heads, .columns = columns, .rows = to});
    in_at_.push_back(book(in_to_.back()));
  };
  bring(RowAxis::kKey, problem.d, whole.k, part.k);
  bring(RowAxis::kKey, problem.dv, whole.v, part.v);
  if (whole.has_rope) bring(RowAxis::kKey, problem.d_rope, whole.k_rope, part.k_rope);
  if (!whole_heads) return;
  bring(RowAxis::kQuery, problem.d, whole.q, part.q);
  if (whole.has_rope) bring(RowAxis::kQuery, problem.d_rope, whole.q_rope, part.q_rope);

  const auto take_back = [&](int64_t columns, const layout::Rows& from, const layout::Rows& to,
                             const layout::Stats& copies) {
    back_from_.push_back({.axis = RowAxis::kQuery, .heads_per_kv = group, .columns = columns, .rows = from});
    back_to_.push_back({.axis = RowAxis::kQuery,
                        .heads_per_kv = group,
                        .columns = columns,
                        .rows = to,
                        .copies = copies.copies,
                        .copy_stride = copies.copy_stride});
    back_at_.push_back(book(back_from_.back()));
  };
  take_back(problem.dv, part.out, whole.out, {});
  const auto take_statistic = [&](bool present, const layout::Stats& from, const layout::Stats& to) {
    if (present) take_back(1, RowsOfStatistic(from), RowsOfStatistic(to), to);
  };
  take_statistic(whole.has_max, part.softmax_max, whole.softmax_max);
  take_statistic(whole.has_sum, part.softmax_sum, whole.softmax_sum);
  take_statistic(whole.has_lse, part.lse, whole.lse);
}

UnitPlaces ForwardUnit::PlacesOf(const AttentionArgs& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.whole;
  UnitPlaces places;
  const auto from = [&](const TensorView& tensor, const layout::Rows& rows) {
    places.in_from.Add(layout::RowsView(tensor.data, rows).At(batch_, 0, 0));
  };
  from(args.k, whole.k);
  from(args.v, whole.v);
  if (whole.has_rope) from(args.k_rope, whole.k_rope);
  for (const size_t at : in_at_) places.in_to.Add(staged + at);
  if (!staged_queries_) return places;
  from(args.q, whole.q);
  if (whole.has_rope) from(args.q_rope, whole.q_rope);
  for (const size_t at : back_at_) places.back_from.Add(staged + at);
  const auto to = [&](const MutableTensorView& tensor, const layout::Rows& rows) {
    places.back_to.Add(layout::MutableRowsView(tensor.data, rows).At(batch_, 0, 0));
  };
  to(args.out, whole.out);
  if (whole.has_max) to(args.softmax_max, RowsOfStatistic(whole.softmax_max));
  if (whole.has_sum) to(args.softmax_sum, RowsOfStatistic(whole.softmax_sum));
  if (whole.has_lse) to(args.lse, RowsOfStatistic(whole.lse));
  return places;
}

void ForwardUnit::ClearSlack(std::byte* staged) const { ops::ClearSlack(in_to_, in_at_, keys_, heads_.size(), staged); }

ForwardAddresses ForwardUnit::UnitAddresses(const AttentionArgs& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.whole;
  const int64_t head = heads_.begin * whole.problem.group();
  size_t input = 0, output = 0;
  const auto behind_lead = [&]() -> const void* {
    const size_t t = input++;
    return staged + in_at_[t] - keys_.lead * in_to_[t].RowBytes();
  };
  const auto query = [&](const TensorView& own, const layout::Rows& rows) -> const void* {
    if (staged_queries_) return staged + in_at_[input++];
    return layout::RowsView(own.data, rows).At(batch_, head, 0);
  };
  const auto result = [&](const MutableTensorView& own, const layout::Rows& rows) -> void* {
    if (staged_queries_) return staged + back_at_[output++];
    return layout::MutableRowsView(own.data, rows).At(batch_, head, 0);
  };
  const auto statistic = [&](bool present, const MutableTensorView& own, const layout::Stats& where) -> void* {
    return present ? result(own, RowsOfStatistic(where)) : nullptr;
  };
  // The addresses follow the order of the staged tensors.
  const void *k = behind_lead(), *v = behind_lead(), *k_rope = whole.has_rope ? behind_lead() : nullptr;
  const void* q = query(args.q, whole.q);
  const void* q_rope = whole.has_rope ? query(args.q_rope, whole.q_rope) : nullptr;
  void* out = result(args.out, whole.out);
  void* softmax_max = statistic(whole.has_max, args.softmax_max, whole.softmax_max);
  void* softmax_sum = statistic(whole.has_sum, args.softmax_sum, whole.softmax_sum);
  void* lse = statistic(whole.has_lse, args.lse, whole.lse);
  return {.q = q,
          .k = k,
          .v = v,
          .q_rope = q_rope,
          .k_rope = k_rope,
          .sink = whole.has_sink ? static_cast<const float*>(args.sink.data) + head : nullptr,
          .scores = {args.pse.data, args.dense_mask.data, args.drop_mask.data},
          .out = out,
          .softmax_max = softmax_max,
          .softmax_sum = softmax_sum,
          .lse = lse};
}

}  // namespace fa::ops
