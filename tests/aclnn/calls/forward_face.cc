#include "aclnn/calls/forward_face.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "support/compare/compare.h"

namespace fa::test {
namespace {

constexpr size_t kCopies = 8;

// Returns running sums. Empty sequences at the end get the sum 0, as in programs whose lists are longer than needed.
std::vector<int64_t> PrefixSums(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> sums;
  int64_t sum = 0;
  for (const int64_t length : lengths) sums.push_back(sum += length);
  for (size_t i = lengths.size(); i-- > 0 && lengths[i] == 0;) sums[i] = 0;
  return sums;
}

ForwardCase WithoutStatistics(ForwardCase c) {
  c.wants_max = c.wants_sum = c.wants_lse = false;
  return c;
}

}  // namespace

AttentionParameters ParametersOf(const ForwardCase& c, Handles& handles) {
  AttentionParameters p;
  if (!c.mask.prefix.empty()) p.prefix = handles.Array(c.mask.prefix);
  if (c.packed()) {
    p.q_lengths = handles.Array(PrefixSums(c.lengths.sq));
    p.kv_lengths = handles.Array(PrefixSums(c.lengths.sk));
  }
  if (c.pse == PseForm::kSlopes) {
    p.q_start = handles.Array({c.q_start});
    p.kv_start = handles.Array({c.kv_start});
  }
  p.scale = c.scale_value();
  p.keep_prob = c.keep_prob;
  if (const auto state = OptionsOf(c).dropout) {
    p.seed = static_cast<int64_t>(state->seed);
    p.offset = static_cast<int64_t>(state->offset);
  }
  p.sparse_mode = c.sparse_mode ? c.mask.mode : 0;
  if (c.sparse_mode) {
    p.pre = c.mask.pre;
    p.next = c.mask.next;
  }
  p.heads = c.heads;
  p.layout = Name(c.layout);
  if (c.pse_type != reference::PseType::kNone) p.pse_type = static_cast<int64_t>(c.pse_type);
  return p;
}

aclTensor* AttenMaskOf(const ForwardCase& c, const TensorView& dense_mask, Handles& handles) {
  if (dense_mask.data != nullptr || !c.sparse_mode || c.mask.mode < 2) return handles.Tensor(dense_mask);
  const std::vector<uint8_t>& mask = CompressedMask(c.mask.mode);
  return handles.Tensor(const_cast<uint8_t*>(mask.data()), ACL_BOOL, {static_cast<int64_t>(mask.size()) / 2048, 2048});
}

bool AsOnTheDevice(ForwardCase* c, bool version4) {
  if (c->layout == Layout::kBNSD_BSND || (c->d_rope > 0 && !c->packed() && !version4)) return false;
  if (c->mask.mode == reference::MaskRule::kRows) return false;
  c->softcap = 0;
  c->sink_form = reference::SinkForm::kPerHead;
  if (c->dropout == DropoutForm::kSeed && !version4) {
    c->dropout = DropoutForm::kNone;
    c->keep_prob = 1;
  }
  const bool compressed = c->mask.mode >= 2 && c->mask.mode != 5;
  if (compressed) c->dense_mask = MaskForm::kNone;
  c->sparse_mode = compressed || c->dense_mask != MaskForm::kNone;
  if (!c->sparse_mode) c->mask = {};
  return true;
}

Statistics::Statistics(const ForwardCase& c, std::string softmax_layout)
    : case_(c), like_input_(softmax_layout == "same_as_input") {
  shape_ = {c.batch(), c.heads, c.max_sq(), kCopies};
  if (c.packed()) shape_ = {c.tensor_rows_q(), c.heads, kCopies};
  int64_t elements = 1;
  for (const int64_t size : shape_) elements *= size;
  values_.assign(static_cast<size_t>(elements), NAN);
}

aclTensor* Statistics::Tensor(Handles& handles) { return handles.Tensor(values_.data(), ACL_FLOAT, shape_); }

size_t Statistics::Offset(int64_t b, int64_t n, int64_t i) const {
  const auto& rows = case_.lengths.sq;
  int64_t before = 0;
  for (int64_t x = 0; x < b; ++x) before += rows[static_cast<size_t>(x)];
  const int64_t unit =
      like_input_ ? (before + i) * case_.heads + n : before * case_.heads + n * rows[static_cast<size_t>(b)] + i;
  return static_cast<size_t>(unit) * kCopies;
}

std::vector<float> Statistics::Placed(const std::vector<double>& values) const {
  std::vector<float> placed(values_.size(), 0);
  size_t next = 0;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    for (int64_t n = 0; n < case_.heads; ++n) {
      for (int64_t i = 0; i < case_.lengths.sq[static_cast<size_t>(b)]; ++i) {
        std::fill_n(placed.begin() + static_cast<ptrdiff_t>(Offset(b, n, i)), kCopies,
                    static_cast<float>(values[next++]));
      }
    }
  }
  return placed;
}

void Statistics::Set(const std::vector<double>& values) {
  const std::vector<float> placed = Placed(values);
  std::copy(placed.begin(), placed.end(), values_.begin());  // copied in place, because descriptors point to values_
}

::testing::AssertionResult Statistics::Holds(const std::vector<double>& values) const {
  const std::vector<float> want = Placed(values);
  for (size_t x = 0; x < want.size(); ++x) {
    const bool both_nan = std::isnan(want[x]) && std::isnan(values_[x]);
    if (both_nan || std::bit_cast<uint32_t>(want[x]) == std::bit_cast<uint32_t>(values_[x])) continue;
    return ::testing::AssertionFailure() << "statistics[" << x << "]=" << values_[x] << ", want " << want[x];
  }
  return ::testing::AssertionSuccess();
}

ForwardFace::ForwardFace(const ForwardCase& c, const std::string& softmax_layout)
    : problem_(WithoutStatistics(c)), max_(c, softmax_layout), sum_(c, softmax_layout) {
  static_cast<AttentionParameters&>(parameters_) = ParametersOf(c, handles_);
  parameters_.softmax_layout = softmax_layout;
  const AttentionArgs args = problem_.args();
  parameters_.query = handles_.Tensor(args.q);
  parameters_.query_rope = handles_.Tensor(args.q_rope);
  parameters_.key = handles_.Tensor(args.k);
  parameters_.key_rope = handles_.Tensor(args.k_rope);
  parameters_.value = handles_.Tensor(args.v);
  parameters_.pse = handles_.Tensor(args.pse);
  parameters_.drop_mask = handles_.Tensor(args.drop_mask);
  parameters_.atten_mask = AttenMaskOf(c, args.dense_mask, handles_);
  parameters_.sink = handles_.Tensor(args.sink);
  parameters_.softmax_max = max_.Tensor(handles_);
  parameters_.softmax_sum = sum_.Tensor(handles_);
  parameters_.out = handles_.Tensor(args.out);
}

::testing::AssertionResult SameAsCpp(const ForwardCase& c, ForwardVersion version, const std::string& softmax_layout) {
  ForwardCase with_statistics = c;
  with_statistics.wants_max = with_statistics.wants_sum = true;
  with_statistics.wants_lse = false;
  const ForwardProblem cpp(with_statistics);
  ForwardFace face(c, softmax_layout);
  const Status status = cpp.Run(nullptr);
  const Snapshot snapshot = face.problem().TakeSnapshot(/*outputs_may_change=*/status.ok());
  const aclError error = face.Run(version);
  if (!status.ok()) {
    if (error != ACLNN_ERR_PARAM_INVALID) {
      return ::testing::AssertionFailure() << "returned " << error << ", want 161002: " << status.message();
    }
  } else if (error != 0) {
    return ::testing::AssertionFailure() << "returned " << error << ": " << aclGetRecentErrMsg() << "\n" << c;
  }
  if (snapshot.FirstChange() >= 0) return ::testing::AssertionFailure() << "wrote beside its outputs\n" << c;
  if (!status.ok()) return ::testing::AssertionSuccess();

  const ForwardOutputs want = cpp.Outputs();
  const ForwardOutputs got = face.problem().Outputs();
  ForwardOutputs want_out{.out = want.out, .max = {}, .sum = {}, .lse = {}, .tail = {}};
  ForwardOutputs got_out{.out = got.out, .max = {}, .sum = {}, .lse = {}, .tail = {}};
  if (auto same = SameBits(want_out, got_out); !same) return same << "\n" << c;
  if (!std::all_of(got.tail.begin(), got.tail.end(), [](double x) { return x == 0; })) {
    return ::testing::AssertionFailure() << "rows past the last sequence are not 0\n" << c;
  }
  if (auto holds = face.max().Holds(want.max); !holds) return holds << " (max)\n" << c;
  if (auto holds = face.sum().Holds(want.sum); !holds) return holds << " (sum)\n" << c;
  return ::testing::AssertionSuccess();
}

}  // namespace fa::test
