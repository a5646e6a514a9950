#include "support/cases/rank_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "support/execution/contexts.h"
#include "support/sanitizer.h"
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
    default: break;
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

std::vector<Isa> RankLevels() {
  std::vector<Isa> levels = IsaLevels();
  if (!Sanitized()) return levels;
  std::erase(levels, Isa::kAvx512Amx);  // the level amx_emulated moves the same rows
  if (levels.size() > 2) levels.erase(levels.begin(), levels.end() - 2);
  return levels;
}

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

RankTensors::Own& RankTensors::Make(const MutableTensorView& whole, int axis, std::vector<int64_t> indices) {
  Own& own = owned_.emplace_back(Own{whole, whole, axis, std::move(indices), {}});
  if (own.whole.stride.empty()) own.whole.stride = DenseStride(whole.shape);
  own.part.shape[axis] = std::ssize(own.indices);
  own.part.stride = DenseStride(own.part.shape);
  size_t bytes = SizeOf(whole.dtype);
  for (int i = 0; i < whole.shape.rank(); ++i) bytes *= static_cast<size_t>(own.part.shape[i]);
  own.bytes.assign(bytes, std::byte{0xff});
  own.part.data = bytes > 0 ? own.bytes.data() : nullptr;
  return own;
}

void RankTensors::Copy(const Own& own, bool back) const {
  const Dims& shape = own.part.shape;
  // Axes after the cut axis form one run of bytes if they are contiguous in both tensors. If the cut axis is contiguous
  // too, its consecutive indices belong to one run.
  int last = shape.rank() - 1;
  int64_t run = 1;
  for (; last > own.axis && own.part.stride[last] == run && own.whole.stride[last] == run; --last) run *= shape[last];
  const bool packed = last == own.axis && own.part.stride[last] == run && own.whole.stride[last] == run;
  const auto element = static_cast<int64_t>(SizeOf(own.part.dtype));
  int64_t others = 1;
  for (int i = 0; i <= last; ++i) others *= i == own.axis ? 1 : shape[i];
  const int64_t indices = std::ssize(own.indices);
  for (int64_t flat = 0; flat < others; ++flat) {
    int64_t rest = flat, from = 0, to = 0;
    for (int i = last; i >= 0; --i) {
      if (i == own.axis) continue;
      const int64_t at = rest % shape[i];
      rest /= shape[i];
      to += at * own.part.stride[i];
      from += at * own.whole.stride[i];
    }
    for (int64_t at = 0, end = 0; at < indices; at = end) {
      const int64_t* of_whole = own.indices.data() + at;
      for (end = at + 1; packed && end < indices && own.indices.data()[end] == *of_whole + end - at;) ++end;
      auto* whole = static_cast<std::byte*>(own.whole.data) + (from + *of_whole * own.whole.stride[own.axis]) * element;
      auto* part = static_cast<std::byte*>(own.part.data) + (to + at * own.part.stride[own.axis]) * element;
      std::memcpy(back ? whole : part, back ? part : whole, static_cast<size_t>((end - at) * run * element));
    }
  }
}

TensorView RankTensors::Part(const TensorView& whole, int axis, bool queries) {
  return Part(whole, axis, queries ? q_rows_ : k_rows_);
}

MutableTensorView RankTensors::Part(const MutableTensorView& whole, int axis, bool queries) {
  return Part(whole, axis, queries ? q_rows_ : k_rows_);
}

TensorView RankTensors::Part(const TensorView& whole, int axis, std::vector<int64_t> indices) {
  if (whole.data == nullptr) return whole;
  const MutableTensorView writable{const_cast<void*>(whole.data), whole.dtype, whole.shape, whole.stride};
  const Own& own = Make(writable, axis, std::move(indices));
  Copy(own, /*back=*/false);
  return own.part;
}

MutableTensorView RankTensors::Part(const MutableTensorView& whole, int axis, std::vector<int64_t> indices) {
  if (whole.data == nullptr) return whole;
  const Own& own = Make(whole, axis, std::move(indices));
  outputs_.push_back(&own);
  return own.part;
}

void RankTensors::Return() const {
  for (const Own* own : outputs_) Copy(*own, /*back=*/true);
}

namespace {

/// Returns the number of elements of a TND bias [N*sum(Sq*Sk)].
int64_t Pairs(int64_t heads, std::span<const int64_t> cu_q, std::span<const int64_t> cu_kv) {
  int64_t pairs = 0, first_row = 0, first_key = 0;
  for (size_t b = 0; b < cu_q.size(); ++b) {
    pairs += heads * (cu_q[b] - first_row) * (cu_kv[b] - first_key);
    first_row = cu_q[b];
    first_key = cu_kv[b];
  }
  return pairs;
}

/// Returns which elements of a TND bias belong to a rank: its rows of the first sequence, then of the next one, and so
/// on.
std::vector<int64_t> OwnPairs(const std::vector<int64_t>& q_rows, int64_t heads, std::span<const int64_t> cu_q,
                              std::span<const int64_t> cu_kv) {
  std::vector<int64_t> elements;
  int64_t base = 0, first_row = 0, first_key = 0;
  for (size_t b = 0; b < cu_q.size(); ++b) {
    const int64_t sq = cu_q[b] - first_row, sk = cu_kv[b] - first_key;
    for (int64_t n = 0; n < heads; ++n) {
      for (const int64_t row : q_rows) {
        if (row < first_row || row >= cu_q[b]) continue;
        elements.resize(elements.size() + static_cast<size_t>(sk));
        std::iota(elements.end() - sk, elements.end(), base + (n * sq + row - first_row) * sk);
      }
    }
    base += heads * sq * sk;
    first_row = cu_q[b];
    first_key = cu_kv[b];
  }
  return elements;
}

/// Returns a rank's part of pse or of its gradient: the rank's rows, or the whole tensor if one row applies to all
/// queries.
template <typename View, typename Args>
View PartOfBias(const View& whole, const Args& args, Layout layout, RankTensors& tensors) {
  if (whole.data == nullptr || whole.shape.rank() == 2) return whole;
  if (whole.shape.rank() == 4) {
    return layout != Layout::kTND && whole.shape[2] == args.q.shape[AxisOf(layout)] ? tensors.Part(whole, 2, true)
                                                                                    : whole;
  }
  if (args.cu_q.empty()) return whole;  // slopes [N] have no rows, so each rank takes all of them
  const int64_t heads = args.q.shape[1];
  if (whole.shape[0] != Pairs(heads, args.cu_q, args.cu_kv)) return whole;
  return tensors.Part(whole, 0, OwnPairs(tensors.q_rows(), heads, args.cu_q, args.cu_kv));
}

/// Returns a rank's part of the mask: its rows, or in TND the whole mask.
TensorView PartOfMask(const TensorView& whole, Layout layout, RankTensors& tensors) {
  return layout == Layout::kTND ? whole : tensors.Part(whole, whole.shape.rank() - 2, true);
}

}  // namespace

bool TakenOverRanks(const ForwardCase& c) {
  return c.dropout != DropoutForm::kMask && c.sink_form == reference::SinkForm::kPerHead;
}

SequenceShards::Strategy StrategyFor(const ForwardCase& c, SequenceShards::Strategy wanted) {
  const bool mask_stays = c.dense_mask != MaskForm::kNone && !c.packed();
  return mask_stays || c.pse == PseForm::kFull ? SequenceShards::Strategy::kAuto : wanted;
}

bool SameBytes(const TensorView& a, const TensorView& b) {
  size_t bytes = SizeOf(a.dtype);
  for (int i = 0; i < a.shape.rank(); ++i) bytes *= static_cast<size_t>(a.shape[i]);
  return a.shape == b.shape && (bytes == 0 || std::memcmp(a.data, b.data, bytes) == 0);
}

Isa LowestOf(Isa a, Isa b) {
  if (Includes(a, b)) return b;
  // Levels of different processor families share only kPortable.
  return Includes(b, a) ? a : Isa::kPortable;
}

bool MovedBytesOfThePlan(const Plan& plan, const Transport& transport) {
  const std::optional<RanksInfo> of_ranks = plan.info().ranks;
  const auto rank = static_cast<size_t>(transport.rank());
  return of_ranks.has_value() && transport.traffic().sent_bytes == of_ranks->sent_bytes[rank] &&
         transport.traffic().received_bytes == of_ranks->received_bytes[rank];
}

bool StagesInTheWorkspace(const Plan& plan, int rank) {
  const PlanInfo info = plan.info();
  return info.ranks.has_value() &&
         info.ranks->staged_bytes[static_cast<size_t>(rank)] <= static_cast<int64_t>(info.workspace_bytes);
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
  part.pse = PartOfBias(whole.pse, whole, layout, tensors);
  part.dense_mask = PartOfMask(whole.dense_mask, layout, tensors);
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
  part.pse = PartOfBias(whole.pse, whole, layout, tensors);
  part.dpse = PartOfBias(whole.dpse, whole, layout, tensors);
  part.dense_mask = PartOfMask(whole.dense_mask, layout, tensors);
  part.dslopes = {};
  part.dsink = {};
  return part;
}

}  // namespace fa::test
