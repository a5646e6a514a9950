#include "support/cases/rank_rows.h"

#include <algorithm>
#include <cstring>

#include "support/tensor.h"

namespace fa::test {
namespace {

constexpr int64_t kUnit = 128;

int AxisOf(Layout layout) {
  switch (layout) {
    case Layout::kTND:
    case Layout::kSBH: return 0;
    case Layout::kBSH:
    case Layout::kBSND: return 1;
    case Layout::kBNSD:
    case Layout::kBNSD_BSND: break;
  }
  return 2;
}

void AddChunk(int64_t rows, int64_t chunk, int64_t chunks, std::vector<int64_t>& of_rank) {
  const int64_t units = (rows + kUnit - 1) / kUnit;
  for (int64_t row = units * chunk / chunks * kUnit; row < units * (chunk + 1) / chunks * kUnit && row < rows; ++row) {
    of_rank.push_back(row);
  }
}

}  // namespace

std::vector<int64_t> RowsOfRank(const SequenceShards& shards, int64_t rows, int rank, int ranks) {
  std::vector<int64_t> of_rank;
  switch (shards.cut) {
    case SequenceShards::Cut::kContiguous: AddChunk(rows, rank, ranks, of_rank); break;
    case SequenceShards::Cut::kZigzag:
      AddChunk(rows, rank, 2 * ranks, of_rank);
      AddChunk(rows, 2 * ranks - 1 - rank, 2 * ranks, of_rank);
      break;
    case SequenceShards::Cut::kIntervals:
      for (const auto& interval : shards.intervals[static_cast<size_t>(rank)]) {
        for (int64_t row = interval.begin; row < interval.end; ++row) of_rank.push_back(row);
      }
      break;
  }
  return of_rank;
}

RankTensors::Own& RankTensors::Make(const MutableTensorView& whole, int axis, bool queries) {
  Own& own = owned_.emplace_back(Own{whole, whole, axis, queries, {}});
  if (own.whole.stride.empty()) own.whole.stride = DenseStride(whole.shape);
  own.part.shape[axis] = std::ssize(queries ? q_rows_ : k_rows_);
  own.part.stride = DenseStride(own.part.shape);
  size_t bytes = SizeOf(whole.dtype);
  for (int i = 0; i < whole.shape.rank(); ++i) bytes *= static_cast<size_t>(own.part.shape[i]);
  own.bytes.assign(bytes + 1, std::byte{0xff});  // never null
  own.part.data = own.bytes.data();
  return own;
}

void RankTensors::Copy(const Own& own, bool back) const {
  const Dims& shape = own.part.shape;
  const auto& rows = own.queries ? q_rows_ : k_rows_;
  const auto element = static_cast<int64_t>(SizeOf(own.part.dtype));
  int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) count *= shape[i];
  for (int64_t flat = 0; flat < count; ++flat) {
    int64_t rest = flat, from = 0, to = 0;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      const int64_t at = rest % shape[i];
      rest /= shape[i];
      to += at * own.part.stride[i];
      from += (i == own.axis ? rows[static_cast<size_t>(at)] : at) * own.whole.stride[i];
    }
    auto* whole = static_cast<std::byte*>(own.whole.data) + from * element;
    auto* part = static_cast<std::byte*>(own.part.data) + to * element;
    std::memcpy(back ? whole : part, back ? part : whole, static_cast<size_t>(element));
  }
}

TensorView RankTensors::Part(const TensorView& whole, int axis, bool queries) {
  if (whole.data == nullptr) return whole;
  const Own& own = Make({const_cast<void*>(whole.data), whole.dtype, whole.shape, whole.stride}, axis, queries);
  Copy(own, /*back=*/false);
  return own.part;
}

MutableTensorView RankTensors::Part(const MutableTensorView& whole, int axis, bool queries) {
  if (whole.data == nullptr) return whole;
  const Own& own = Make(whole, axis, queries);
  outputs_.push_back(&own);
  return own.part;
}

void RankTensors::Return() const {
  for (const Own* own : outputs_) Copy(*own, /*back=*/true);
}

AttentionArgs PartOf(const AttentionArgs& whole, Layout layout, RankTensors& tensors) {
  const int axis = AxisOf(layout);
  const int out_axis = layout == Layout::kBNSD_BSND ? 1 : axis;
  const int statistic_axis = layout == Layout::kTND ? 0 : 2;
  AttentionArgs part = whole;
  part.q = tensors.Part(whole.q, axis, true);
  part.k = tensors.Part(whole.k, axis, false);
  part.v = tensors.Part(whole.v, axis, false);
  part.q_rope = tensors.Part(whole.q_rope, axis, true);
  part.k_rope = tensors.Part(whole.k_rope, axis, false);
  part.out = tensors.Part(whole.out, out_axis, true);
  part.softmax_max = tensors.Part(whole.softmax_max, statistic_axis, true);
  part.softmax_sum = tensors.Part(whole.softmax_sum, statistic_axis, true);
  part.lse = tensors.Part(whole.lse, statistic_axis, true);
  return part;
}

AttentionGradArgs PartOf(const AttentionGradArgs& whole, Layout layout, RankTensors& tensors) {
  const int axis = AxisOf(layout);
  const int out_axis = layout == Layout::kBNSD_BSND ? 1 : axis;
  const int statistic_axis = layout == Layout::kTND ? 0 : 2;
  AttentionGradArgs part = whole;
  for (const auto of : {&AttentionGradArgs::q, &AttentionGradArgs::q_rope}) {
    part.*of = tensors.Part(whole.*of, axis, true);
  }
  for (const auto of : {&AttentionGradArgs::k, &AttentionGradArgs::v, &AttentionGradArgs::k_rope}) {
    part.*of = tensors.Part(whole.*of, axis, false);
  }
  for (const auto of : {&AttentionGradArgs::out, &AttentionGradArgs::d_out}) {
    part.*of = tensors.Part(whole.*of, out_axis, true);
  }
  for (const auto of : {&AttentionGradArgs::softmax_max, &AttentionGradArgs::softmax_sum}) {
    part.*of = tensors.Part(whole.*of, statistic_axis, true);
  }
  for (const auto of : {&AttentionGradArgs::dq, &AttentionGradArgs::dq_rope}) {
    part.*of = tensors.Part(whole.*of, axis, true);
  }
  for (const auto of : {&AttentionGradArgs::dk, &AttentionGradArgs::dv, &AttentionGradArgs::dk_rope}) {
    part.*of = tensors.Part(whole.*of, axis, false);
  }
  part.dslopes = {};
  part.dsink = {};
  return part;
}

}  // namespace fa::test
