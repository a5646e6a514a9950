// Computes the errors of the library and of a naive computation in the same type, both against a reference in double.
// The library's error must not be much larger. The naive computation accumulates in f32 and takes the softmax of whole
// rows. It rounds P to the 16-bit type before P V, and rounds the result at the end.
#include <gtest/gtest.h>

#include "support/compare/agrees.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

struct Yardstick {
  const char* name;
  int64_t s, d;
  int mode;
};

class ForwardAccuracy : public ::testing::TestWithParam<std::tuple<DType, Yardstick>> {};

// Each error is the largest over tens of thousands of elements, so chance hardly changes it. So the bound needs no
// allowance for chance.
TEST_P(ForwardAccuracy, ErrorIsAtMostTwiceThatOfTheNaiveComputation) {
  const auto& [dtype, yardstick] = GetParam();
  ForwardCase c;
  c.seed = 99;
  c.dtype = dtype;
  c.d = c.dv = yardstick.d;
  c.lengths = EqualLengths(1, yardstick.s, yardstick.s);
  c.mask.mode = yardstick.mode;
  const ForwardProblem problem(c);
  const reference::ForwardResult exact = reference::Forward(problem.values());
  const reference::ForwardResult naive = reference::NaiveForward(problem.values(), FormatOf(dtype));
  const double allowed = 2 * LargestError(naive.out, exact.out);
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    const ForwardOutputs got = OutputsOf(problem, ContextOf(isa));
    EXPECT_LE(LargestError(got.out, exact.out), allowed) << Name(isa);
    // An lse between 4 and 8 has an ulp of 2^-21, so rounding it adds up to 2^-22.
    EXPECT_LE(LargestError(got.lse, exact.lse), 2 * LargestError(naive.lse, exact.lse) + 0x1p-22) << Name(isa);
  }
}

constexpr Yardstick kYardsticks[] = {
    {"S512D64", 512, 64, 1}, {"S512D128Causal", 512, 128, 3}, {"S300D40", 300, 40, 1}, {"S256D256Causal", 256, 256, 3}};

INSTANTIATE_TEST_SUITE_P(UnitNormal, ForwardAccuracy,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                                            ::testing::ValuesIn(kYardsticks)),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name;
                         });

// The promise is an absolute error of at most 4e-6 for unit-normal f32 inputs. 64 query rows stand for all 4096.
TEST(ForwardAccuracy, F32With4096KeysIsWithin4em6) {
  for (const int64_t d : {64, 128}) {
    ForwardCase c;
    c.d = c.dv = d;
    c.lengths = EqualLengths(1, 64, 4096);
    const ForwardProblem problem(c);
    const reference::ForwardResult exact = reference::Forward(problem.values());
    for (const Isa isa : IsaLevels()) {
      problem.ForgetOutputs();
      EXPECT_LE(LargestError(OutputsOf(problem, ContextOf(isa)).out, exact.out), 4e-6) << Name(isa) << " d=" << d;
    }
  }
}

// If scores differ by hundreds, all probabilities except the largest underflow. None may overflow.
TEST(ForwardAccuracy, LargeScoresNeitherOverflowNorLoseTheMaximum) {
  for (const Isa isa : IsaLevels()) {
    for (const float scale : {50.0F, -50.0F, 1e4F}) {
      ForwardCase c;
      c.scale = scale;
      c.lengths = EqualLengths(1, 40, 600);
      EXPECT_TRUE(RunsLikeTheReference(c, ContextOf(isa)));
    }
  }
}

}  // namespace
}  // namespace fa::test
