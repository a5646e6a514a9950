#include "ops/ranks/forward_unit.h"

#include <type_traits>
#include <utility>

#include "tiling/forward/row_cut.h"

namespace fa::ops {
namespace {

using tiling::RowAxis;

layout::Rows RowsOfStatistic(const layout::Stats& statistic) {
  return {.dtype = DType::kF32, .batch = statistic.batch, .head = statistic.head, .row = statistic.row};
}

template <typename T>
T* Shifted(T* data, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<int64_t>(SizeOf(dtype));
}

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
  if (staged_queries_) back_ = MessagesBack(in_, back_from_);
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

const std::byte* ForwardUnit::OfBatch(const void* data, const layout::Rows& rows) const {
  return static_cast<const std::byte*>(data) + batch_ * rows.batch * static_cast<int64_t>(SizeOf(rows.dtype));
}

UnitPlaces ForwardUnit::PlacesOf(const AttentionArgs& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.whole;
  UnitPlaces places;
  places.in_from.Add(OfBatch(args.k.data, whole.k));
  places.in_from.Add(OfBatch(args.v.data, whole.v));
  if (whole.has_rope) places.in_from.Add(OfBatch(args.k_rope.data, whole.k_rope));
  for (const size_t at : in_at_) places.in_to.Add(staged + at);
  if (!staged_queries_) return places;
  places.in_from.Add(OfBatch(args.q.data, whole.q));
  if (whole.has_rope) places.in_from.Add(OfBatch(args.q_rope.data, whole.q_rope));
  for (const size_t at : back_at_) places.back_from.Add(staged + at);
  const auto to = [&](const MutableTensorView& tensor, const layout::Rows& rows) {
    places.back_to.Add(const_cast<std::byte*>(OfBatch(tensor.data, rows)));
  };
  to(args.out, whole.out);
  if (whole.has_max) to(args.softmax_max, RowsOfStatistic(whole.softmax_max));
  if (whole.has_sum) to(args.softmax_sum, RowsOfStatistic(whole.softmax_sum));
  if (whole.has_lse) to(args.lse, RowsOfStatistic(whole.lse));
  return places;
}

void ForwardUnit::ClearSlack(std::byte* staged) const { ops::ClearSlack(in_to_, in_at_, keys_, heads_.size(), staged); }

AttentionArgs ForwardUnit::UnitArgs(const AttentionArgs& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.whole;
  const int64_t head = heads_.begin * whole.problem.group();
  AttentionArgs part = args;
  size_t input = 0;
  const auto behind_lead = [&](TensorView& view) {
    view.data = staged + in_at_[input] - keys_.lead * in_to_[input].RowBytes();
    ++input;
  };
  behind_lead(part.k);
  behind_lead(part.v);
  if (whole.has_rope) behind_lead(part.k_rope);
  if (whole.has_sink) part.sink.data = Shifted(args.sink.data, head, DType::kF32);
  if (staged_queries_) {
    part.q.data = staged + in_at_[input++];
    if (whole.has_rope) part.q_rope.data = staged + in_at_[input++];
    size_t output = 0;
    part.out.data = staged + back_at_[output++];
    if (whole.has_max) part.softmax_max.data = staged + back_at_[output++];
    if (whole.has_sum) part.softmax_sum.data = staged + back_at_[output++];
    if (whole.has_lse) part.lse.data = staged + back_at_[output++];
    return part;
  }
  const auto at = [&](auto& view, const layout::Rows& rows) {
    view.data = Shifted(view.data, batch_ * rows.batch + head * rows.head, rows.dtype);
  };
  at(part.q, whole.q);
  if (whole.has_rope) at(part.q_rope, whole.q_rope);
  at(part.out, whole.out);
  if (whole.has_max) at(part.softmax_max, RowsOfStatistic(whole.softmax_max));
  if (whole.has_sum) at(part.softmax_sum, RowsOfStatistic(whole.softmax_sum));
  if (whole.has_lse) at(part.lse, RowsOfStatistic(whole.lse));
  return part;
}

}  // namespace fa::ops
