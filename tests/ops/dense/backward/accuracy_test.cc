// Computes the errors of the library and of a naive computation in the same type, both against a reference in double.
// The library's errors must not be much larger. The naive computation accumulates in f32, rounds P and dS to the 16-bit
// type before their products, and rounds the results at the end.
#include <gtest/gtest.h>

#include <tuple>

#include "support/compare/agrees.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

/// Returns the results of a forward as inputs of the backward.
reference::ForwardResult ResultOf(const ForwardOutputs& outputs) {
  reference::ForwardResult result;
  result.out = outputs.out;
  result.max = outputs.max;
  result.sum = outputs.sum;
  return result;
}

struct Yardstick {
  const char* name;
  int64_t s, d;
  int mode;
};

class BackwardAccuracy : public ::testing::TestWithParam<std::tuple<DType, Yardstick>> {};

// Each error is the largest over tens of thousands of elements, so chance hardly changes it. So the bound needs no
// allowance for chance.
TEST_P(BackwardAccuracy, ErrorIsAtMostThreeTimesThatOfTheNaiveComputation) {
  const auto& [dtype, yardstick] = GetParam();
  BackwardCase c;
  ForwardCase& f = c.forward;
  f.seed = 99;
  f.dtype = dtype;
  f.d = f.dv = yardstick.d;
  f.lengths = EqualLengths(1, yardstick.s, yardstick.s);
  f.mask.mode = yardstick.mode;
  const ForwardProblem forward(f);
  BackwardValues values = MakeBackwardValues(c);
  const reference::Problem& p = values.problem;
  const reference::Gradients exact = reference::Backward(p, reference::Forward(p), values.d_out);
  const reference::Format format = FormatOf(dtype);
  const reference::Gradients naive =
      reference::NaiveBackward(p, reference::NaiveForward(p, format), values.d_out, format);
  for (const Isa isa : IsaLevels()) {
    values.forward = ResultOf(OutputsOf(forward, ContextOf(isa)));
    const BackwardProblem backward(c, values);
    const reference::Gradients got = OutputsOf(backward, ContextOf(isa)).gradients;
    EXPECT_LE(LargestError(got.dq, exact.dq), 3 * LargestError(naive.dq, exact.dq)) << Name(isa);
    EXPECT_LE(LargestError(got.dk, exact.dk), 3 * LargestError(naive.dk, exact.dk)) << Name(isa);
    EXPECT_LE(LargestError(got.dv, exact.dv), 3 * LargestError(naive.dv, exact.dv)) << Name(isa);
  }
}

constexpr Yardstick kYardsticks[] = {
    {"S512D64", 512, 64, 1}, {"S400D128Causal", 400, 128, 3}, {"S300D40", 300, 40, 1}, {"S256D256Causal", 256, 256, 3}};

INSTANTIATE_TEST_SUITE_P(UnitNormal, BackwardAccuracy,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                            ::testing::ValuesIn(kYardsticks)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
                         });

// Each gradient of a parameter adds up hundreds of thousands of pairs, most of which cancel.
TEST(BackwardParameterAccuracy, IsAtMostThreeTimesThatOfTheNaiveComputation) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool slopes : {false, true}) {
      BackwardCase c;
      ForwardCase& f = c.forward;
      f.dtype = dtype;
      f.heads = f.heads_kv = 8;
      f.d = f.dv = 32;
      f.lengths = EqualLengths(2, 120, 120);
      f.sink = true;
      f.pse = slopes ? PseForm::kSlopes : PseForm::kRow;
      f.pse_type = slopes ? reference::PseType::kSlopes : reference::PseType::kScaleThenAdd;
      f.pse_f32 = true;
      const BackwardValues values = MakeBackwardValues(c);
      const BackwardProblem backward(c, values);
      const reference::Gradients exact = reference::Backward(values.problem, values.forward, values.d_out);
      const reference::Gradients naive =
          reference::NaiveBackward(values.problem, values.forward, values.d_out, reference::Format::kF32);
      for (const Isa isa : IsaLevels()) {
        const reference::Gradients got = OutputsOf(backward, ContextOf(isa)).gradients;
        // exp2 has an error of 4e-6 in 16-bit types, and of 2^-23 in f32. The bound grows by this ratio.
        const double times = dtype == DType::kF32 ? 3 : 3 * 4e-6 / 0x1p-23;
        EXPECT_LE(LargestError(got.dsink, exact.dsink), 3 * LargestError(naive.dsink, exact.dsink)) << Name(isa);
        EXPECT_LE(LargestError(got.dslopes, exact.dslopes), times * LargestError(naive.dslopes, exact.dslopes))
            << Name(isa);
        EXPECT_LE(LargestError(got.dpse, exact.dpse), times * LargestError(naive.dpse, exact.dpse)) << Name(isa);
      }
    }
  }
}

/// delta is computed from the rounded output (docs/numerics.md). Adds the errors that follow in dq and dk. If u is the
/// unit roundoff of `dtype`, delta is off by u sum |dO O|, and dS by P times that. dQ and dK are off by scale times the
/// products of the error of dS with |K| and |Q|.
void AddRoundingOfTheOutput(const reference::Problem& p, const reference::ForwardResult& exact,
                            const std::vector<double>& d_out, DType dtype, reference::Gradients* allowed) {
  const double unit = reference::UnitRoundoff(FormatOf(dtype));
  for (int64_t n = 0; n < p.heads; ++n) {
    for (int64_t i = 0; i < p.lengths.sq[0]; ++i) {
      const int64_t row = p.QueryRow(0, n, i, 1), o = row * p.dv, q = row * p.d;
      double delta_error = 0;
      for (int64_t x = 0; x < p.dv; ++x) delta_error += unit * std::fabs(d_out[o + x] * exact.out[o + x]);
      for (int64_t j = 0; j < p.lengths.sk[0]; ++j) {
        const int64_t k = p.KeyRow(0, n, j, p.d);
        double score = 0;
        for (int64_t x = 0; x < p.d; ++x) score += p.scale * p.q[q + x] * p.k[k + x];
        const double error = p.scale * std::exp(score - exact.max[row]) / exact.sum[row] * delta_error;
        for (int64_t x = 0; x < p.d; ++x) {
          allowed->dq[q + x] += error * std::fabs(p.k[k + x]);
          allowed->dk[k + x] += error * std::fabs(p.q[q + x]);
        }
      }
    }
  }
}

// One key takes nearly all the weight of a row. Then dP and delta cancel, and the error from the rounded output
// remains.
TEST(BackwardSaturatedRows, AreOffByTheRoundingOfTheOutput) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.heads = c.forward.heads_kv = 2;
    c.forward.d = c.forward.dv = 64;
    c.forward.lengths = EqualLengths(1, 70, 90);
    c.forward.scale = 2;
    const BackwardValues values = MakeBackwardValues(c);
    const reference::ForwardResult exact = reference::Forward(values.problem);
    const ExpectedGradients of_given = ExpectGradients(c, values);
    ExpectedGradients expected{reference::Backward(values.problem, exact, values.d_out), of_given.allowed};
    const double of_rounding = LargestError(of_given.want.dq, expected.want.dq);
    AddRoundingOfTheOutput(values.problem, exact, values.d_out, dtype, &expected.allowed);
    const BackwardProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      problem.ForgetOutputs();
      EXPECT_TRUE(RunsLikeTheReference(problem, expected, ContextOf(isa)));
      // Most of the error comes from rounding the output: a computation in double that starts from the rounded output
      // has at least half of the error.
      if (dtype == DType::kF32) continue;
      EXPECT_GT(of_rounding, 0.5 * LargestError(problem.Outputs().gradients.dq, expected.want.dq)) << Name(isa);
      EXPECT_FALSE(MatchesReference(problem.Outputs(), {expected.want, of_given.allowed})) << Name(isa);
    }
  }
}

// If scores differ by hundreds, all probabilities except the largest underflow. None may overflow.
TEST(BackwardScores, LargeScoresNeitherOverflowNorLoseTheMaximum) {
  for (const float scale : {50.0F, -50.0F, 1e4F}) {
    BackwardCase c;
    c.forward.scale = scale;
    c.forward.lengths = EqualLengths(1, 40, 300);
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

}  // namespace
}  // namespace fa::test
