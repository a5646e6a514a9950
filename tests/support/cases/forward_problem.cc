#include "support/cases/forward_problem.h"

#include <algorithm>
#include <cmath>

namespace fa::test {
namespace {

/// The slots in the buffer of Packing::kTogether, one per tensor.
enum Slot : int64_t { kSlotQ, kSlotK, kSlotV, kSlotOut, kSlots };
constexpr int64_t kNoSlot = -1;

Layout OutLayout(Layout layout) { return layout == Layout::kBNSD_BSND ? Layout::kBSND : layout; }

bool HasHeadDimension(Layout layout) { return layout != Layout::kBSH && layout != Layout::kSBH; }

std::vector<int64_t> PrefixSums(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> sums;
  int64_t sum = 0;
  for (const int64_t length : lengths) sums.push_back(sum += length);
  return sums;
}

template <typename T>
void Copy(const std::vector<T>& values, const Tensor& to) {
  const std::vector<double> wide(values.begin(), values.end());
  to.SetRun(0, wide.data(), std::ssize(wide));
}

}  // namespace

ForwardProblem::ForwardProblem(const ForwardCase& c, reference::Problem values) : case_(c), values_(std::move(values)) {
  if (case_.packed()) {
    cu_q_ = PrefixSums(case_.lengths.sq);
    cu_kv_ = PrefixSums(case_.lengths.sk);
  }
  PlaceHeads();
  PlacePairs();
  PlaceStatistics();
}

HeadTensor ForwardProblem::PlaceHead(DType dtype, Layout layout, HeadSizes sizes, int64_t slot) {
  if (case_.packing == Packing::kApart || slot == kNoSlot) {
    return MakeHeadTensor(dtype, layout, sizes, case_.padding, case_.placement);
  }
  const int64_t size = std::max(case_.d, case_.dv);
  const int64_t slot_size = std::max(case_.heads, case_.heads_kv) * size;
  const int64_t rows = std::max(case_.tensor_rows_q(), case_.tensor_rows_k());
  if (together_ == nullptr) {
    together_ = std::make_shared<GuardedBuffer>(
        static_cast<size_t>(sizes.batch * rows * kSlots * slot_size) * SizeOf(dtype), case_.placement.place,
        static_cast<size_t>(case_.placement.misalignment) * SizeOf(dtype));
  }
  HeadStrides stride{.batch = rows * kSlots * slot_size, .head = size, .row = kSlots * slot_size};
  if (!HasHeadDimension(layout)) stride.head = sizes.size;
  return {Tensor(dtype, ShapeOf(layout, sizes), StrideDims(layout, stride), together_, slot * slot_size), stride};
}

void ForwardProblem::PlaceHeads() {
  const ForwardCase& c = case_;
  const int64_t batch = c.packed() ? 1 : c.batch();
  const HeadSizes query{.batch = batch, .heads = c.heads, .rows = c.tensor_rows_q()};
  const HeadSizes key{.batch = batch, .heads = c.heads_kv, .rows = c.tensor_rows_k()};
  const auto sized = [](HeadSizes sizes, int64_t size) {
    sizes.size = size;
    return sizes;
  };
  q_ = PlaceHead(c.dtype, c.layout, sized(query, c.d), kSlotQ);
  k_ = PlaceHead(c.dtype, c.layout, sized(key, c.d), kSlotK);
  v_ = PlaceHead(c.dtype, c.layout, sized(key, c.dv), kSlotV);
  out_ = PlaceHead(c.dtype, OutLayout(c.layout), sized(query, c.dv), kSlotOut);
  Scatter(q_, values_.q, c.lengths.sq, c.heads, c.d);
  Scatter(k_, values_.k, c.lengths.sk, c.heads_kv, c.d);
  Scatter(v_, values_.v, c.lengths.sk, c.heads_kv, c.dv);
  if (c.d_rope == 0) return;
  q_rope_ = PlaceHead(c.dtype, c.layout, sized(query, c.d_rope), kNoSlot);
  k_rope_ = PlaceHead(c.dtype, c.layout, sized(key, c.d_rope), kNoSlot);
  Scatter(q_rope_, values_.q_rope, c.lengths.sq, c.heads, c.d_rope);
  Scatter(k_rope_, values_.k_rope, c.lengths.sk, c.heads_kv, c.d_rope);
}

void ForwardProblem::PlacePairs() {
  const ForwardCase& c = case_;
  const int64_t pse_batch = c.pse_broadcast_batch ? 1 : c.batch();
  if (c.dense_mask != MaskForm::kNone) {
    Dims shape{c.max_sq(), c.max_sk()};
    if (!c.packed() && c.dense_mask == MaskForm::kPlane4d) shape = {1, 1, c.max_sq(), c.max_sk()};
    if (!c.packed() && c.dense_mask == MaskForm::kPerBatch) shape = {c.batch(), 1, c.max_sq(), c.max_sk()};
    if (!c.packed() && c.dense_mask == MaskForm::kPerHead) shape = {c.batch(), c.heads, c.max_sq(), c.max_sk()};
    dense_mask_ = Tensor(c.dense_mask_dtype, shape, {}, c.placement);
    Copy(values_.dense_mask.values, dense_mask_);
  }
  if (c.pse == PseForm::kSlopes) {
    pse_ = Tensor(DType::kF32, c.pse_broadcast_batch ? Dims{c.heads} : Dims{c.batch(), c.heads}, {}, c.placement);
    for (int64_t x = 0; x < pse_batch * c.heads; ++x) pse_.Set(x, values_.slopes[x]);
  } else if (c.pse != PseForm::kNone) {
    Dims shape{pse_batch, c.heads, c.max_sq(), c.max_sk()};
    if (c.pse == PseForm::kRow) shape[2] = 1;
    if (c.pse == PseForm::kCompressed) shape[2] = 1024;
    if (c.packed() && c.pse != PseForm::kCompressed) shape = {static_cast<int64_t>(values_.pse.values.size())};
    pse_ = Tensor(c.pse_f32 ? DType::kF32 : c.dtype, shape, {}, c.placement);
    Copy(values_.pse.values, pse_);
  }
  if (c.dropout == DropoutForm::kMask) {
    const std::vector<uint8_t> bits(values_.drop_bits.begin(), values_.drop_bits.end() - 1);
    drop_mask_ = Tensor(DType::kU8, {static_cast<int64_t>(bits.size())}, {}, c.placement);
    Copy(bits, drop_mask_);
  }
  sink_ = SinkTensor(c, values_);
}

void ForwardProblem::PlaceStatistics() {
  const ForwardCase& c = case_;
  const auto statistic = [&](bool wanted) -> HeadTensor {
    if (!wanted) return {};
    HeadStrides stride{.head = 1, .row = c.heads + c.padding.middle};
    if (c.packed()) {
      return {Tensor(DType::kF32, {c.tensor_rows_q(), c.heads}, {stride.row, 1}, c.placement), stride};
    }
    stride.row = 1;
    stride.head = c.max_sq() + c.padding.middle;
    stride.batch = c.heads * stride.head + c.padding.outer;
    return {Tensor(DType::kF32, {c.batch(), c.heads, c.max_sq()}, {stride.batch, stride.head, 1}, c.placement), stride};
  };
  max_ = statistic(c.wants_max);
  sum_ = statistic(c.wants_sum);
  lse_ = statistic(c.wants_lse);
}

ForwardProblem::Row ForwardProblem::RowOf(const std::vector<int64_t>& lengths, int64_t b, int64_t s) const {
  if (!case_.packed()) return {b, s};
  return {0, values_.RowsBefore(lengths, b) + s};
}

void ForwardProblem::Scatter(const HeadTensor& to, const std::vector<double>& from, const std::vector<int64_t>& rows,
                             int64_t heads, int64_t size) const {
  size_t next = 0;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t s = 0; s < rows[b]; ++s) {
        const Row row = RowOf(rows, b, s);
        const int64_t offset = to.Offset(row.batch, n, row.row);
        to.tensor.SetRun(offset, from.data() + next, size);
        next += static_cast<size_t>(size);
      }
    }
  }
}

std::vector<double> ForwardProblem::Gather(const HeadTensor& from, int64_t size) const {
  std::vector<double> values;
  if (from.tensor.absent()) return values;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t n = 0; n < case_.heads; ++n) {
      for (int64_t s = 0; s < case_.lengths.sq[b]; ++s) {
        const Row row = RowOf(case_.lengths.sq, b, s);
        const int64_t offset = from.Offset(row.batch, n, row.row);
        from.tensor.AppendTo(values, offset, size);
      }
    }
  }
  return values;
}

std::vector<const HeadTensor*> ForwardProblem::OutputTensors() const { return {&out_, &max_, &sum_, &lse_}; }

AttentionArgs ForwardProblem::args() const {
  AttentionArgs args;
  args.q = q_.tensor.view();
  args.k = k_.tensor.view();
  args.v = v_.tensor.view();
  args.q_rope = q_rope_.tensor.view();
  args.k_rope = k_rope_.tensor.view();
  args.pse = pse_.view();
  args.dense_mask = dense_mask_.view();
  args.drop_mask = drop_mask_.view();
  args.sink = sink_.view();
  args.cu_q = cu_q_;
  args.cu_kv = cu_kv_;
  args.out = out_.tensor.mutable_view();
  args.softmax_max = max_.tensor.mutable_view();
  args.softmax_sum = sum_.tensor.mutable_view();
  args.lse = lse_.tensor.mutable_view();
  return args;
}

ForwardOutputs ForwardProblem::Outputs() const {
  ForwardOutputs outputs{.out = Gather(out_, case_.dv),
                         .max = Gather(max_, 1),
                         .sum = Gather(sum_, 1),
                         .lse = Gather(lse_, 1),
                         .tail = {}};
  for (const HeadTensor* from : OutputTensors()) {
    if (from->tensor.absent()) continue;
    for (int64_t t = case_.tensor_rows_q() - case_.tail_q; t < case_.tensor_rows_q(); ++t) {
      for (int64_t n = 0; n < case_.heads; ++n) {
        from->tensor.AppendTo(outputs.tail, from->Offset(0, n, t), from == &out_ ? case_.dv : 1);
      }
    }
  }
  return outputs;
}

void ForwardProblem::ForgetOutputs() const {
  const int64_t batch = case_.packed() ? 1 : case_.batch();
  for (const HeadTensor* to : OutputTensors()) {
    if (to->tensor.absent()) continue;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t n = 0; n < case_.heads; ++n) {
        for (int64_t s = 0; s < case_.tensor_rows_q(); ++s) {
          to->tensor.Fill(to->Offset(b, n, s), to == &out_ ? case_.dv : 1, NAN);
        }
      }
    }
  }
}

Snapshot ForwardProblem::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const Tensor* tensor : {&q_.tensor, &k_.tensor, &v_.tensor, &q_rope_.tensor, &k_rope_.tensor, &pse_,
                               &dense_mask_, &drop_mask_, &sink_}) {
    snapshot.Add(*tensor);
  }
  for (const HeadTensor* output : OutputTensors()) {
    outputs_may_change ? snapshot.Allow(output->tensor) : snapshot.Add(output->tensor);
  }
  return snapshot;
}

}  // namespace fa::test
