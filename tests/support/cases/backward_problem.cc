#include "support/cases/backward_problem.h"

#include <algorithm>
#include <cmath>

namespace fa::test {
namespace {

/// The slots in the buffer of Packing::kTogether, one per tensor.
enum Slot : int64_t { kSlotOut, kSlotDOut, kSlotDQ, kSlotDK, kSlotDV, kSlots };
constexpr int64_t kNoSlot = -1;

constexpr int64_t kCopies = 8;  // the device stores each statistic eight times

Layout OutLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

ForwardCase InputsOnly(ForwardCase c) {
  c.wants_max = c.wants_sum = c.wants_lse = false;
  return c;
}

int64_t Count(const Dims& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<double> ElementsOf(const Tensor& tensor) {
  std::vector<double> values;
  if (tensor.absent()) return values;
  tensor.AppendTo(values, 0, Count(tensor.shape()));
  return values;
}

}  // namespace

BackwardProblem::BackwardProblem(const BackwardCase& c, BackwardValues values)
    : case_(c), values_(std::move(values)), forward_(InputsOnly(c.forward), values_.problem) {
  const ForwardCase& f = case_.forward;
  const Layout out_layout = OutLayout(f.layout);
  out_ = PlaceRows(out_layout, /*of_queries=*/true, f.dv, kSlotOut);
  d_out_ = PlaceRows(out_layout, /*of_queries=*/true, f.dv, kSlotDOut);
  dq_ = PlaceRows(f.layout, /*of_queries=*/true, f.d, kSlotDQ);
  dk_ = PlaceRows(f.layout, /*of_queries=*/false, f.d, kSlotDK);
  dv_ = PlaceRows(f.layout, /*of_queries=*/false, f.dv, kSlotDV);
  if (f.d_rope > 0) {
    dq_rope_ = PlaceRows(f.layout, /*of_queries=*/true, f.d_rope, kNoSlot);
    dk_rope_ = PlaceRows(f.layout, /*of_queries=*/false, f.d_rope, kNoSlot);
  }
  Scatter(values_.forward.out, out_);
  Scatter(values_.d_out, d_out_);
  PlaceStatistic(values_.forward.max, &max_);
  PlaceStatistic(values_.forward.sum, &sum_);
  const AttentionArgs inputs = forward_.args();
  if (case_.wants_dpse()) dpse_ = Tensor(inputs.pse.dtype, inputs.pse.shape, {}, f.placement);
  if (case_.wants_dslopes()) dslopes_ = Tensor(DType::kF32, inputs.pse.shape, {}, f.placement);
  if (case_.wants_dsink()) dsink_ = Tensor(DType::kF32, inputs.sink.shape, {}, f.placement);
}

BackwardProblem::Rows BackwardProblem::PlaceRows(Layout layout, bool of_queries, int64_t size, int64_t slot) {
  const ForwardCase& f = case_.forward;
  Rows rows{.at = {},
            .lengths = of_queries ? &case_.forward.lengths.sq : &case_.forward.lengths.sk,
            .heads = of_queries ? f.heads : f.heads_kv,
            .size = size,
            .tensor_rows = of_queries ? f.tensor_rows_q() : f.tensor_rows_k()};
  const HeadSizes sizes{
      .batch = f.packed() ? 1 : f.batch(), .heads = rows.heads, .rows = rows.tensor_rows, .size = size};
  if (case_.packing == Packing::kApart || slot == kNoSlot) {
    rows.at = MakeHeadTensor(f.dtype, layout, sizes, case_.padding, f.placement);
    return rows;
  }
  const int64_t head_size = std::max(f.d, f.dv);
  const int64_t slot_size = std::max(f.heads, f.heads_kv) * head_size;
  const int64_t longest = std::max(f.tensor_rows_q(), f.tensor_rows_k());
  if (together_ == nullptr) {
    together_ = std::make_shared<GuardedBuffer>(
        static_cast<size_t>(sizes.batch * longest * kSlots * slot_size) * SizeOf(f.dtype), f.placement.place,
        static_cast<size_t>(f.placement.misalignment) * SizeOf(f.dtype));
  }
  HeadStrides stride{.batch = longest * kSlots * slot_size, .head = head_size, .row = kSlots * slot_size};
  if (layout == Layout::kBSH || layout == Layout::kSBH) stride.head = size;
  rows.at = {Tensor(f.dtype, ShapeOf(layout, sizes), StrideDims(layout, stride), together_, slot * slot_size), stride};
  return rows;
}

template <typename Visit>
void BackwardProblem::ForEachRow(const Rows& rows, const Visit& visit) const {
  int64_t before = 0;
  for (int64_t b = 0; b < case_.forward.batch(); ++b) {
    const int64_t length = (*rows.lengths)[b];
    for (int64_t n = 0; n < rows.heads; ++n) {
      for (int64_t s = 0; s < length; ++s) {
        visit(case_.forward.packed() ? rows.at.Offset(0, n, before + s) : rows.at.Offset(b, n, s));
      }
    }
    before += length;
  }
}

void BackwardProblem::PlaceStatistic(const std::vector<double>& values, Tensor* tensor) const {
  const ForwardCase& f = case_.forward;
  const int64_t copies = case_.eight_statistics ? kCopies : 1;
  const int64_t batch = f.packed() ? 1 : f.batch();
  const HeadSizes sizes{.batch = batch, .heads = f.heads, .rows = f.tensor_rows_q()};
  const HeadTensor placed = MakeStatistic(f.packed(), sizes, copies, case_.padding, f.placement);
  *tensor = placed.tensor;
  const Rows rows{
      .at = placed, .lengths = &f.lengths.sq, .heads = f.heads, .size = copies, .tensor_rows = f.tensor_rows_q()};
  std::vector<double> copied;
  for (const double value : values) copied.insert(copied.end(), static_cast<size_t>(copies), value);
  Scatter(copied, rows);
}

void BackwardProblem::Scatter(const std::vector<double>& from, const Rows& to) const {
  size_t next = 0;
  ForEachRow(to, [&](int64_t offset) {
    to.at.tensor.SetRun(offset, from.data() + next, to.size);
    next += static_cast<size_t>(to.size);
  });
}

std::vector<double> BackwardProblem::Gather(const Rows& from, std::vector<double>* tail) const {
  std::vector<double> values;
  if (from.at.tensor.absent()) return values;
  const auto take = [&](int64_t offset, std::vector<double>* to) { from.at.tensor.AppendTo(*to, offset, from.size); };
  ForEachRow(from, [&](int64_t offset) { take(offset, &values); });
  if (!case_.forward.packed()) return values;
  int64_t row = 0;
  for (const int64_t length : *from.lengths) row += length;
  for (; row < from.tensor_rows; ++row) {
    for (int64_t n = 0; n < from.heads; ++n) take(from.at.Offset(0, n, row), tail);
  }
  return values;
}

std::vector<const BackwardProblem::Rows*> BackwardProblem::GradientRows() const {
  return {&dq_, &dk_, &dv_, &dq_rope_, &dk_rope_};
}

std::vector<const Tensor*> BackwardProblem::ParameterGradients() const { return {&dpse_, &dslopes_, &dsink_}; }

AttentionGradArgs BackwardProblem::args() const {
  const AttentionArgs inputs = forward_.args();
  AttentionGradArgs args;
  args.q = inputs.q;
  args.k = inputs.k;
  args.v = inputs.v;
  args.q_rope = inputs.q_rope;
  args.k_rope = inputs.k_rope;
  args.pse = inputs.pse;
  args.dense_mask = inputs.dense_mask;
  args.drop_mask = inputs.drop_mask;
  args.sink = inputs.sink;
  args.cu_q = inputs.cu_q;
  args.cu_kv = inputs.cu_kv;
  args.out = out_.at.tensor.view();
  args.d_out = d_out_.at.tensor.view();
  args.softmax_max = max_.view();
  args.softmax_sum = sum_.view();
  args.dq = dq_.at.tensor.mutable_view();
  args.dk = dk_.at.tensor.mutable_view();
  args.dv = dv_.at.tensor.mutable_view();
  args.dq_rope = dq_rope_.at.tensor.mutable_view();
  args.dk_rope = dk_rope_.at.tensor.mutable_view();
  args.dpse = dpse_.mutable_view();
  args.dslopes = dslopes_.mutable_view();
  args.dsink = dsink_.mutable_view();
  return args;
}

BackwardOutputs BackwardProblem::Outputs() const {
  BackwardOutputs outputs;
  outputs.gradients = {.dq = Gather(dq_, &outputs.tail),
                       .dk = Gather(dk_, &outputs.tail),
                       .dv = Gather(dv_, &outputs.tail),
                       .dq_rope = Gather(dq_rope_, &outputs.tail),
                       .dk_rope = Gather(dk_rope_, &outputs.tail),
                       .dpse = ElementsOf(dpse_),
                       .dslopes = ElementsOf(dslopes_),
                       .dsink = SinksOf(case_.forward, values_.problem, dsink_)};
  return outputs;
}

void BackwardProblem::ForgetOutputs() const {
  for (const Rows* to : GradientRows()) {
    if (to->at.tensor.absent()) continue;
    const int64_t batch = case_.forward.packed() ? 1 : case_.forward.batch();
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t n = 0; n < to->heads; ++n) {
        for (int64_t s = 0; s < to->tensor_rows; ++s) {
          to->at.tensor.Fill(to->at.Offset(b, n, s), to->size, NAN);
        }
      }
    }
  }
  for (const Tensor* to : ParameterGradients()) {
    if (to->absent()) continue;
    to->Fill(0, Count(to->shape()), NAN);
  }
}

Snapshot BackwardProblem::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot = forward_.TakeSnapshot(/*outputs_may_change=*/false);
  for (const Tensor* tensor : {&out_.at.tensor, &d_out_.at.tensor, &max_, &sum_}) snapshot.Add(*tensor);
  const auto add = [&](const Tensor& tensor) { outputs_may_change ? snapshot.Allow(tensor) : snapshot.Add(tensor); };
  for (const Rows* rows : GradientRows()) add(rows->at.tensor);
  for (const Tensor* tensor : ParameterGradients()) add(*tensor);
  return snapshot;
}

}  // namespace fa::test
