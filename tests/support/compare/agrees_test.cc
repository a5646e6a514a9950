// Tests the comparisons that all tests use. No comparison accepts a NaN in place of a number, and each can fail.
#include "support/compare/agrees.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/cases/token/token_outputs.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

TEST(Agrees, WithinTheBoundAndNotBeyond) {
  EXPECT_TRUE(Agrees(1.5, 1, 0.5));
  EXPECT_FALSE(Agrees(1.75, 1, 0.5));
  EXPECT_TRUE(Agrees(1, 1, 0));
  EXPECT_FALSE(Agrees(std::nextafter(1, 2), 1, 0));
}

TEST(Agrees, ANanWithANanOnlyAndAnInfinityWithItself) {
  for (const double allowed : {0.0, 1.0}) {
    EXPECT_TRUE(Agrees(kNan, kNan, allowed));
    EXPECT_FALSE(Agrees(kNan, 1, allowed));
    EXPECT_FALSE(Agrees(1, kNan, allowed));
    EXPECT_TRUE(Agrees(-kInf, -kInf, allowed));
    EXPECT_FALSE(Agrees(kInf, -kInf, allowed));
    EXPECT_FALSE(Agrees(kInf, 1, allowed));
    EXPECT_FALSE(Agrees(kNan, kInf, allowed));
  }
}

TEST(Agrees, NothingWithABoundThatIsNoNumber) {
  for (const double allowed : {kNan, kInf}) {
    EXPECT_FALSE(Agrees(1, 1.5, allowed));
    EXPECT_FALSE(Agrees(1, 1, allowed));
  }
}

TEST(LargestError, IsNanWhereverTheNanStands) {
  EXPECT_EQ(LargestError({1, 5, 3}, {1, 2, 4}), 3);
  EXPECT_EQ(LargestError({}, {}), 0);
  for (size_t at = 0; at < 3; ++at) {
    std::vector<double> got = {1, 5, 3};
    got[at] = kNan;
    EXPECT_TRUE(std::isnan(LargestError(got, {1, 2, 4}))) << at;
    EXPECT_TRUE(std::isnan(LargestError({1, 2, 4}, got))) << at;
  }
  EXPECT_THROW(static_cast<void>(LargestError({1, 2}, {1, 2, 3})), std::invalid_argument);
}

/// A finished call with one row per tensor, whose results agree with the reference.
class ForwardChecks : public ::testing::Test {
 protected:
  ForwardChecks() : ForwardChecks(MakeReferenceProblem({})) {}
  explicit ForwardChecks(const reference::Problem& values) : problem_({}, values) {
    EXPECT_TRUE(RunsLikeTheReference(problem_, ContextOf(DetectIsa(), 1)));
  }
  [[nodiscard]] std::vector<MutableTensorView> Statistics() const {
    const AttentionArgs args = problem_.args();
    return {args.softmax_max, args.softmax_sum, args.lse};
  }

  ForwardProblem problem_;
};

TEST_F(ForwardChecks, NoticeANanInEveryOutput) {
  std::vector<MutableTensorView> outputs = Statistics();
  outputs.push_back(problem_.args().out);
  for (const MutableTensorView& output : outputs) {
    auto* first = static_cast<float*>(output.data);
    const float before = *first;
    *first = static_cast<float>(kNan);
    EXPECT_FALSE(MatchesReference(problem_));
    *first = before;
    EXPECT_TRUE(MatchesReference(problem_));
  }
}

class ChecksOfASpoiledRow : public ForwardChecks {
 protected:
  static reference::Problem Values() {
    reference::Problem values = MakeReferenceProblem({});
    values.q[0] = kNan;
    return values;
  }
  ChecksOfASpoiledRow() : ForwardChecks(Values()) {}
};

TEST_F(ChecksOfASpoiledRow, NoticeANumberInEveryStatistic) {
  for (const MutableTensorView& statistic : Statistics()) {
    auto* first = static_cast<float*>(statistic.data);
    ASSERT_TRUE(std::isnan(*first));
    *first = 1;
    EXPECT_FALSE(MatchesReference(problem_));
    *first = static_cast<float>(kNan);
    EXPECT_TRUE(MatchesReference(problem_));
  }
}

TEST(BackwardChecks, NoticeANanInEveryGradient) {
  ExpectedGradients expected;
  BackwardOutputs got;
  for (auto gradient : {&reference::Gradients::dq, &reference::Gradients::dv, &reference::Gradients::dsink}) {
    expected.want.*gradient = {1, 2};
    expected.allowed.*gradient = {0.5, 0.5};
    got.gradients.*gradient = {1, 2.25};
  }
  EXPECT_TRUE(MatchesReference(got, expected));
  for (auto gradient : {&reference::Gradients::dq, &reference::Gradients::dv, &reference::Gradients::dsink}) {
    BackwardOutputs spoiled = got;
    (spoiled.gradients.*gradient)[1] = kNan;
    EXPECT_FALSE(MatchesReference(spoiled, expected));
  }
}

TEST(TokenChecks, NoticeANan) {
  TokenOutputs got = {{"out", {{1, 2}, {0}}, 0}};
  const std::vector<ExpectedOutput> expected = {{"out", {1, 2}, {0.5, 0}}};
  EXPECT_TRUE(MatchesExpected(got, expected));
  for (double* value : {&got[0].rows.values[0], &got[0].rows.values[1], &got[0].rows.unused[0]}) {
    const double before = *value;
    *value = kNan;
    EXPECT_FALSE(MatchesExpected(got, expected));
    *value = before;
  }
}

}  // namespace
}  // namespace fa::test
