#include "ranks/run/grad_unit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layout/rows_view.h"
#include "tiling/row_cut.h"

namespace fa::ops {
namespace {

using tiling::RowAxis;
using Args = AttentionGradArgs;

/// Sets the sign bit of every element of a row.
void SetSigns(std::byte* row, const RowTensor& tensor) {
  const auto element = static_cast<int64_t>(SizeOf(tensor.rows.dtype));
  for (int64_t c = 0; c < tensor.columns; ++c) row[(c + 1) * element - 1] |= std::byte{0x80};
}

}  // namespace

GradUnit::GradUnit(const BoundGradRanks& bound, const tiling::RankPlan& plan, const tiling::RankUnit& unit,
                   const Context& context)
    : UnitTensors(bound.forward.call, plan, unit, bound.forward.rank),
      bound_(bound),
      first_sequence_(unit.sequences.begin),
      key_axis_(AxisOf(bound.forward.call, unit, RowAxis::kKey)) {
  const tiling::RankCall& call = bound.forward.call;
  if (!staged_queries_) {
    finished_ = StagedRows(FinishedKeys(call, unit, bound.forward.rank), 0);
    unseen_of_all_ = FinishedKeys(call, unit, -1);
    unseen_ = Within(call.k.Of(bound.forward.rank), unseen_of_all_);
  }
  BoundAttentionGrad part = BoundOfUnit(bound, plan, unit, keys_, staged_queries_ ? &queries_ : nullptr);
  AddInputs(part);
  AddOutputs(part);
  if (has_bias()) AddBias();
  in_ = MessagesIn(call, plan, unit, bound.forward.rank, queries_, keys_, in_from_);
  if (!staged_queries_) {
    back_ = MessagesHome(call, unit, bound.forward.rank, finished_, back_from_);
    if (!part.forward.problem.sequences.empty()) PlanChain(plan, unit, std::move(part), context);
    return;
  }
  back_ = MessagesBack(call, plan, unit, bound.forward.rank, queries_, keys_, back_from_);
  if (!part.forward.problem.sequences.empty() && !heads_.empty()) {
    program_ = std::make_unique<const BackwardProgram>(context, std::move(part));
  }
}

void GradUnit::AddInputs(const BoundAttentionGrad& part) {
  const BoundAttention &whole = bound_.forward.whole, &forward = part.forward;
  const tiling::AttentionProblem& problem = whole.problem;
  Bring(&Args::k, Key(problem.d), whole.k, forward.k);
  Bring(&Args::v, Key(problem.dv), whole.v, forward.v);
  if (whole.has_rope) Bring(&Args::k_rope, Key(problem.d_rope), whole.k_rope, forward.k_rope);
  if (!staged_queries_) return;
  Bring(&Args::q, Query(problem.d), whole.q, forward.q);
  if (whole.has_rope) Bring(&Args::q_rope, Query(problem.d_rope), whole.q_rope, forward.q_rope);
  Bring(&Args::out, Query(problem.dv), whole.out, forward.out);
  Bring(&Args::d_out, Query(problem.dv), bound_.d_out, part.d_out);
  Bring(&Args::softmax_max, Query(1), RowsOfStatistic(whole.softmax_max), RowsOfStatistic(forward.softmax_max));
  Bring(&Args::softmax_sum, Query(1), RowsOfStatistic(whole.softmax_sum), RowsOfStatistic(forward.softmax_sum));
}

void GradUnit::AddOutputs(const BoundAttentionGrad& part) {
  const tiling::AttentionProblem& problem = bound_.forward.whole.problem;
  const bool has_rope = bound_.forward.whole.has_rope;
  const int64_t rows = staged_queries_ ? keys_.rows : finished_.rows;
  const auto take_keys = [&](Output tensor, int64_t columns, layout::Rows from, const layout::Rows& to) {
    from.head = rows * columns;
    TakeBack(tensor, Key(columns), from, to, rows);
  };
  take_keys(&Args::dk, problem.d, part.dk, bound_.dk);
  take_keys(&Args::dv, problem.dv, part.dv, bound_.dv);
  if (has_rope) take_keys(&Args::dk_rope, problem.d_rope, part.dk_rope, bound_.dk_rope);
  if (!staged_queries_) return;
  TakeBack(&Args::dq, Query(problem.d), part.dq, bound_.dq, queries_.rows);
  if (has_rope) TakeBack(&Args::dq_rope, Query(problem.d_rope), part.dq_rope, bound_.dq_rope, queries_.rows);
}

/// Adds the f32 sums of the bias gradient to the messages. This rank sends the sums of its heads to all ranks and
/// receives the sums of all heads.
void GradUnit::AddBias() {
  const tiling::AttentionProblem& problem = bound_.forward.whole.problem;
  RowTensor bias{.axis = RowAxis::kEveryKey, .heads_per_kv = problem.group(), .columns = 1};
  bias.rows = {.dtype = DType::kF32, .head = staged_queries_ ? key_axis_.size() : finished_.rows, .row = 1};
  back_from_.push_back(bias);
  bias_from_ = Book(bias, bias.rows.head);
  bias.rows.head = key_axis_.size();
  back_to_.push_back(bias);
  bias_to_ = staged_bytes_;
  staged_bytes_ += AlignedBytes(problem.heads_kv * bias.HeadBytes(key_axis_.size()));
}

void GradUnit::KeepBias(std::byte* program_workspace, std::byte* staged) const {
  if (!has_bias()) return;
  const tiling::AttentionProblem& problem = program_->bound().forward.problem;
  auto* to = reinterpret_cast<float*>(staged + bias_from_);
  const float* from = program_->buffers().KeyBias(program_workspace);
  for (int64_t s = 0; s < std::ssize(problem.sequences); ++s) {
    const int64_t sk = problem.sequences[static_cast<size_t>(s)].sk;
    const int64_t at =
        bound_.forward.call.problem.sequences[static_cast<size_t>(first_sequence_ + s)].k_offset - key_axis_.begin;
    for (int64_t head = 0; head < problem.heads; ++head) {
      std::copy_n(from + program_->buffers().KeyBase(s) + head * sk, sk, to + head * key_axis_.size() + at);
    }
  }
}

void GradUnit::ClearUnseenBias(std::byte* staged) const {
  const int64_t group = bound_.forward.whole.problem.group();
  for (const tiling::Interval& keys : unseen_of_all_) {
    for (int64_t head = heads_.begin * group; head < heads_.end * group; ++head) {
      std::fill_n(ArrivedBias(staged) + head * key_axis_.size() + keys.begin - key_axis_.begin, keys.size(), 0.0f);
    }
  }
}

void GradUnit::PlanChain(const tiling::RankPlan& plan, const tiling::RankUnit& unit, BoundAttentionGrad part,
                         const Context& context) {
  const tiling::RankCall& call = bound_.forward.call;
  chain_ =
      std::make_unique<const GradChain>(context, std::move(part), ComputedParts(call, plan, unit, bound_.forward.rank),
                                        call.problem.sequences, first_sequence_, unit.sums, bound_.forward.rank);
}

UnitPlaces GradUnit::PlacesOf(const Args& args, std::byte* staged) const {
  UnitPlaces places = UnitTensors::PlacesOf(args, staged);
  if (has_bias()) {
    places.back_from.Add(staged + bias_from_);
    places.back_to.Add(staged + bias_to_);
  }
  return places;
}

GradChain::Finished GradUnit::FinishedRows(std::byte* staged) const {
  const auto at = [&](size_t t) { return layout::MutableRowsView(staged + back_at_[t], back_from_[t].rows); };
  const bool has_rope = bound_.forward.whole.has_rope;
  return {.dk = at(0),
          .dk_rope = has_rope ? at(2) : layout::MutableRowsView(),
          .dv = at(1),
          .bias = reinterpret_cast<float*>(staged + bias_from_),
          .rows = finished_};
}

// The gradient of a key that no row keeps is 0 times the scale, as in one process. With a negative scale the gradient
// is -0.
void GradUnit::ClearUnseenKeys(const Args& args) const {
  const bool negative = std::signbit(bound_.forward.whole.scale);
  for (size_t t = 0; t < outputs_.size(); ++t) {
    const RowTensor& tensor = back_to_[t];
    const layout::MutableRowsView to((args.*outputs_[t]).data, tensor.rows);
    for (const tiling::PlacedRows& run : unseen_) {
      for (int64_t head = heads_.begin; head < heads_.end; ++head) {
        for (int64_t row = 0; row < run.rows.size(); ++row) {
          to.Clear(batch_, head, run.at + row, tensor.columns);
          if (negative && outputs_[t] != &Args::dv) SetSigns(to.At(batch_, head, run.at + row), tensor);
        }
      }
    }
  }
}

Args GradUnit::UnitArgs(const Args& args, std::byte* staged) const {
  const BoundAttention& whole = bound_.forward.whole;
  Args part = StagedArgs(args, staged);
  if (whole.has_sink) MoveToUnit(part.sink);
  part.dsink = {};
  if (staged_queries_) return part;
  MoveToUnit(part.q, whole.q);
  MoveToUnit(part.out, whole.out);
  MoveToUnit(part.d_out, bound_.d_out);
  MoveToUnit(part.dq, bound_.dq);
  MoveToUnit(part.softmax_max, RowsOfStatistic(whole.softmax_max));
  MoveToUnit(part.softmax_sum, RowsOfStatistic(whole.softmax_sum));
  if (whole.has_rope) {
    MoveToUnit(part.q_rope, whole.q_rope);
    MoveToUnit(part.dq_rope, bound_.dq_rope);
  }
  return part;
}

}  // namespace fa::ops
