// A bias that all heads share by a stride of 0 has a gradient of one head, which is the sum over the heads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr int64_t kBatch = 3, kHeads = 4, kRows = 37, kKeys = 45;

/// The sizes of dimensions of a bias, each 1 or the size of the call.
struct Shape {
  int64_t batch, heads, rows;

  [[nodiscard]] Dims dims() const { return {batch, heads, rows, kKeys}; }
  [[nodiscard]] int64_t count() const { return batch * heads * rows * kKeys; }
  /// Returns the place of a pair's value.
  [[nodiscard]] int64_t Place(int64_t b, int64_t n, int64_t i, int64_t j) const {
    return ((b % batch * heads + n % heads) * rows + i % rows) * kKeys + j;
  }
};
constexpr Shape kFull{kBatch, kHeads, kRows};
constexpr Shape kOfOneHead[] = {{kBatch, 1, kRows}, {1, 1, kRows}, {kBatch, 1, 1}, {1, 1, 1}};

BackwardProblem MakeProblem(DType dtype) {
  BackwardCase c;
  c.forward.dtype = dtype;
  c.forward.heads = kHeads;
  c.forward.heads_kv = 2;
  c.forward.lengths = EqualLengths(kBatch, kRows, kKeys);
  return BackwardProblem(c);
}

/// Runs the problem with a bias that depends only on the key. Returns the bias's gradient, which has the dimensions of
/// `shape`.
Tensor GradientOfBias(const BackwardProblem& problem, const Shape& shape, DType dtype, Context* context) {
  const Tensor bias(dtype, {kKeys}, {1}), gradient(dtype, shape.dims(), DenseStride(shape.dims()));
  for (int64_t j = 0; j < kKeys; ++j) bias.Set(j, static_cast<double>(j % 5) / 4);
  AttentionGradArgs args = problem.args();
  args.pse = bias.view();
  args.pse.shape = {shape.batch, kHeads, shape.rows, kKeys};
  args.pse.stride = {0, 0, 0, 1};
  args.dpse = gradient.mutable_view();
  AttentionOptions options = problem.options();
  options.pse_type = PseType::kScaleThenAdd;
  const Status status = FlashAttentionGrad(args, options, context);
  EXPECT_TRUE(status.ok()) << status.message();
  return gradient;
}

std::vector<double> Values(const Tensor& tensor, int64_t count) {
  std::vector<double> values;
  tensor.AppendTo(values, 0, count);
  return values;
}

/// Expects that `got` is the gradient `full`, summed over the dimensions that have size 1 in `shape`. Each sum has at
/// most kBatch * kHeads * kRows float32 terms, and is rounded at each addition.
void ExpectSums(const std::vector<double>& full, const Shape& shape, const std::vector<double>& got) {
  std::vector<double> want(got.size()), magnitude(got.size());
  for (int64_t pair = 0; pair < kFull.count(); ++pair) {
    const int64_t j = pair % kKeys, i = pair / kKeys % kRows, n = pair / kKeys / kRows % kHeads;
    const auto place = static_cast<size_t>(shape.Place(pair / kKeys / kRows / kHeads, n, i, j));
    want[place] += full[static_cast<size_t>(pair)];
    magnitude[place] += std::fabs(full[static_cast<size_t>(pair)]);
  }
  const auto terms = static_cast<double>(kFull.count() / shape.count());
  for (size_t place = 0; place < got.size(); ++place) {
    const double allowed = terms * std::numeric_limits<float>::epsilon() / 2 * magnitude[place];
    ASSERT_LE(std::fabs(got[place] - want[place]), allowed) << "place " << place << " of " << shape.rows << " rows";
  }
}

TEST(BackwardSharedHeads, TheGradientIsTheSumOverHeads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const BackwardProblem problem = MakeProblem(dtype);
    for (const Isa isa : IsaLevels()) {
      SCOPED_TRACE(Name(isa));
      const auto full = Values(GradientOfBias(problem, kFull, DType::kF32, ContextOf(isa)), kFull.count());
      for (const Shape& shape : kOfOneHead) {
        const Tensor sums = GradientOfBias(problem, shape, DType::kF32, ContextOf(isa));
        ExpectSums(full, shape, Values(sums, shape.count()));
      }
    }
  }
}

TEST(BackwardSharedHeads, SumsAreRoundedOnce) {
  const BackwardProblem problem = MakeProblem(DType::kBF16);
  for (const Shape& shape : kOfOneHead) {
    const auto sums = Values(GradientOfBias(problem, shape, DType::kF32, ContextOf(Isa::kPortable)), shape.count());
    const auto rounded = Values(GradientOfBias(problem, shape, DType::kBF16, ContextOf(Isa::kPortable)), shape.count());
    for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(rounded[i], RoundTo(DType::kBF16, sums[i])) << i;
  }
}

TEST(BackwardSharedHeads, BitsDoNotDependOnThreadsNorOtherGradientsOnTheSum) {
  const BackwardProblem problem = MakeProblem(DType::kF32);
  for (const Shape& shape : kOfOneHead) {
    const Shape per_head{shape.batch, kHeads, shape.rows};
    const auto one = Values(GradientOfBias(problem, shape, DType::kF32, ContextOf(Isa::kPortable, 1)), shape.count());
    const BackwardOutputs alone = problem.Outputs();
    for (const int threads : {2, 3, 8}) {
      Context* context = ContextOf(Isa::kPortable, threads);
      EXPECT_EQ(Values(GradientOfBias(problem, shape, DType::kF32, context), shape.count()), one) << threads;
      EXPECT_TRUE(SameBits(alone, problem.Outputs())) << threads;
    }
    GradientOfBias(problem, per_head, DType::kF32, ContextOf(Isa::kPortable));
    EXPECT_TRUE(SameBits(alone, problem.Outputs()));
  }
}

}  // namespace
}  // namespace fa::test
