// Tests that a long sequence is computed in bounded memory.
#include <gtest/gtest.h>

#include <cmath>

#include "support/cases/random_values.h"
#include "support/compare/compare_gradients.h"
#include "support/compare/gradient_tolerance.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"
#include "support/execution/emulator.h"

namespace fa::test {
namespace {

/// The length is smaller under emulation, where one pass over 32768 rows would take minutes.
const int64_t kLength = Emulated() ? 8192 : 32768;
constexpr int64_t kSize = 16;
const Dims kShape{1, 1, kLength, kSize};
/// The workspace may be at most this multiple of the tensors' size. It holds f32 copies of the eight inputs and
/// outputs, and panels made from them, whatever the type of the call. A whole matrix of scores would be kLength /
/// kSize, at least 512, times as large as one tensor.
constexpr size_t kMultiple = 4;

std::vector<float> Draw(Tag tag) {
  std::vector<float> values(static_cast<size_t>(kLength * kSize));
  for (size_t x = 0; x < values.size(); ++x) {
    values[x] = static_cast<float>(RandomNormal(1, tag, {static_cast<int64_t>(x)}));
  }
  return values;
}

class BackwardLongSequence : public ::testing::Test {
 protected:
  BackwardLongSequence() {
    options_.mask = Mask::Causal();
    const auto in = [](std::vector<float>& values) { return TensorView{values.data(), DType::kF32, kShape, {}}; };
    const auto out = [](std::vector<float>& values) {
      values.assign(static_cast<size_t>(kLength * kSize), NAN);
      return MutableTensorView{values.data(), DType::kF32, kShape, {}};
    };
    args_.q = in(q_);
    args_.k = in(k_);
    args_.v = in(v_);
    args_.d_out = in(d_out_);
    AttentionArgs forward;
    forward.q = args_.q;
    forward.k = args_.k;
    forward.v = args_.v;
    forward.out = out(out_);
    forward.softmax_max = {max_.data(), DType::kF32, {1, 1, kLength}, {}};
    forward.softmax_sum = {sum_.data(), DType::kF32, {1, 1, kLength}, {}};
    forward_ = FlashAttention(forward, options_, ContextOf(DetectIsa()));
    args_.out = forward.out;
    args_.softmax_max = forward.softmax_max;
    args_.softmax_sum = forward.softmax_sum;
    args_.dq = out(dq_);
    args_.dk = out(dk_);
    args_.dv = out(dv_);
  }

  /// Computes queries [first, first + count) against keys [0, first + count). Compares dQ of these queries, and dK and
  /// dV of the keys from `whole` on, which no other queries see.
  void ExpectRows(int64_t first, int64_t count, int64_t whole) const {
    const int64_t keys = first + count;
    const auto rows = [](const std::vector<float>& values, int64_t begin, int64_t end, int64_t size) {
      return std::vector<double>(values.begin() + begin * size, values.begin() + end * size);
    };
    BackwardCase c;
    c.forward.mask.mode = 3;
    c.forward.lengths = EqualLengths(1, count, keys);
    BackwardValues values;
    reference::Problem& p = values.problem;
    p = {.heads = 1, .heads_kv = 1, .d = kSize, .dv = kSize};
    p.lengths = c.forward.lengths;
    p.q = rows(q_, first, keys, kSize);
    p.k = rows(k_, 0, keys, kSize);
    p.v = rows(v_, 0, keys, kSize);
    p.scale = static_cast<double>(c.forward.scale_value());
    p.mask = c.forward.mask;
    values.forward.out = rows(out_, first, keys, kSize);
    values.forward.max = rows(max_, first, keys, 1);
    values.forward.sum = rows(sum_, first, keys, 1);
    values.d_out = rows(d_out_, first, keys, kSize);
    const ExpectedGradients expected = ExpectGradients(c, values);
    const auto expect = [&](const char* name, const std::vector<float>& got, int64_t from, int64_t offset,
                            const std::vector<double>& want, const std::vector<double>& allowed) {
      for (int64_t x = from * kSize; x < static_cast<int64_t>(want.size()); ++x) {
        ASSERT_NEAR(static_cast<double>(got[offset * kSize + x]), want[x], allowed[x]) << name << ' ' << x;
      }
    };
    expect("dq", dq_, 0, first, expected.want.dq, expected.allowed.dq);
    expect("dk", dk_, whole, 0, expected.want.dk, expected.allowed.dk);
    expect("dv", dv_, whole, 0, expected.want.dv, expected.allowed.dv);
  }

  std::vector<float> q_ = Draw(Tag::kQ), k_ = Draw(Tag::kK), v_ = Draw(Tag::kV), d_out_ = Draw(Tag::kDOut);
  std::vector<float> out_, dq_, dk_, dv_;
  std::vector<float> max_ = std::vector<float>(static_cast<size_t>(kLength)), sum_ = max_;
  AttentionGradArgs args_;
  AttentionOptions options_;
  Status forward_;
};

TEST_F(BackwardLongSequence, CausalOfOneHeadInBoundedMemory) {
  ASSERT_TRUE(forward_.ok()) << forward_.message();
  const auto plan = PlanFlashAttentionGrad(args_, options_, ContextOf(DetectIsa()));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const size_t inputs = 5 * q_.size() * sizeof(float) + 2 * max_.size() * sizeof(float);
  EXPECT_LE(plan->workspace_bytes(), kMultiple * inputs);
  Workspace workspace;
  const Status status = plan->Run(args_, workspace);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto* gradient : {&dq_, &dk_, &dv_}) {
    for (const float x : *gradient) ASSERT_TRUE(std::isfinite(x));
  }
  ExpectRows(kLength - 40, 40, kLength - 40);
  ExpectRows(kLength / 2 + 7, 5, kLength);
  ExpectRows(0, 300, 300);
}

// The plan states the size of its workspace without reading a tensor. The call has 4 * 32 heads of 8192 rows, and only
// few heads are computed at once.
TEST(BackwardWorkspace, IsBoundedByTheHeadsInFlight) {
  const auto check = [&](DType dtype, int64_t heads_kv, const Mask& mask) {
    const Dims q{4, 32, 8192, 64}, k{4, heads_kv, 8192, 64}, statistic{4, 32, 8192};
    const auto address = [](int64_t tensor) { return reinterpret_cast<void*>(tensor << 40); };
    AttentionGradArgs args;
    args.q = {address(1), dtype, q, {}};
    args.k = {address(2), dtype, k, {}};
    args.v = {address(3), dtype, k, {}};
    args.out = {address(4), dtype, q, {}};
    args.d_out = {address(5), dtype, q, {}};
    args.softmax_max = {address(6), DType::kF32, statistic, {}};
    args.softmax_sum = {address(7), DType::kF32, statistic, {}};
    args.dq = {address(8), dtype, q, {}};
    args.dk = {address(9), dtype, k, {}};
    args.dv = {address(10), dtype, k, {}};
    AttentionOptions options;
    options.mask = mask;
    const auto plan = PlanFlashAttentionGrad(args, options, ContextOf(DetectIsa(), 2));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const size_t inputs = static_cast<size_t>((3 * 32 + 2 * heads_kv) * 4 * 8192 * 64) * SizeOf(dtype);
    EXPECT_LE(plan->workspace_bytes(), inputs) << heads_kv << ' ' << Name(dtype);
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kBF16}}, Axis{"heads_kv", {4, 32}},
              Axis{"mask", {Mask::None(), Mask::Causal()}});
}

}  // namespace
}  // namespace fa::test
