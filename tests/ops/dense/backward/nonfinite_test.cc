// NaN and inf that rows see spread by IEEE arithmetic into the gradients that depend on them, and into no others.
#include <gtest/gtest.h>

#include <cmath>

#include "support/cases/random_backward_case.h"
#include "support/cases/random_values.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class BackwardNonFinite : public ::testing::TestWithParam<DType> {
 protected:
  /// Returns a case of two heads with 70 rows and 300 keys.
  static BackwardCase Usual() {
    BackwardCase c;
    c.forward.dtype = GetParam();
    c.forward.heads = c.forward.heads_kv = 2;
    c.forward.lengths = EqualLengths(1, 70, 300);
    return c;
  }
  static BackwardOutputs Run(const BackwardCase& c, const BackwardValues& values) {
    const BackwardProblem problem(c, values);
    EXPECT_TRUE(RunsLikeTheReference(problem));
    return problem.Outputs();
  }
  static BackwardOutputs Run(const BackwardCase& c, const reference::Problem& values) {
    return Run(c, MakeBackwardValues(c, values));
  }
  /// Expects NaN in exactly the rows [first, first + count) of a gradient that has 16 columns.
  static void ExpectSpoiltRows(const std::vector<double>& gradient, int64_t first, int64_t count) {
    for (size_t x = 0; x < gradient.size(); ++x) {
      const int64_t row = static_cast<int64_t>(x) / 16;
      ASSERT_EQ(std::isnan(gradient[x]), row >= first && row < first + count) << "row " << row;
    }
  }
};

TEST_P(BackwardNonFinite, QuerySpoilsItsRowAndTheKeysItSees) {
  for (const int mode : {1, 2}) {
    BackwardCase c = Usual();
    c.forward.mask.mode = mode;
    reference::Problem values = MakeReferenceProblem(c.forward);
    values.q[values.QueryRow(0, 1, 33, 16) + 5] = NAN;
    const reference::Gradients g = Run(c, values).gradients;
    ExpectSpoiltRows(g.dq, 70 + 33, 1);
    ExpectSpoiltRows(g.dk, 300, mode == 1 ? 300 : 34);
    ExpectSpoiltRows(g.dv, 300, mode == 1 ? 300 : 34);
  }
}

TEST_P(BackwardNonFinite, KeySpoilsTheRowsThatSeeItAndAllTheirKeys) {
  BackwardCase c = Usual();
  c.forward.mask.mode = 2;
  reference::Problem values = MakeReferenceProblem(c.forward);
  values.k[values.KeyRow(0, 0, 40, 16) + 2] = NAN;
  const reference::Gradients g = Run(c, values).gradients;
  ExpectSpoiltRows(g.dq, 40, 30);
  ExpectSpoiltRows(g.dk, 0, 70);
  ExpectSpoiltRows(g.dv, 0, 70);
}

TEST_P(BackwardNonFinite, ValueLeavesTheGradientOfValuesAlone) {
  BackwardCase c = Usual();
  c.forward.mask.mode = 2;
  reference::Problem values = MakeReferenceProblem(c.forward);
  values.v[values.KeyRow(0, 1, 33, 16) + 7] = NAN;
  const reference::Gradients g = Run(c, values).gradients;
  ExpectSpoiltRows(g.dq, 70 + 33, 70 - 33);
  ExpectSpoiltRows(g.dk, 300, 70);
  ExpectSpoiltRows(g.dv, 0, 0);
}

// A sink of +inf takes all the weight of its head, and a sink of -inf takes none. With 40 keys, the causal mask leaves
// the first 30 rows without keys.
TEST_P(BackwardNonFinite, InfiniteSinkLeavesNoGradientOrAll) {
  for (const Layout layout : {Layout::kBNSD, Layout::kTND}) {
    for (const int64_t sk : {40, 300}) {
      BackwardCase c = Usual();
      c.forward.layout = layout;
      c.forward.heads = c.forward.heads_kv = 3;
      c.forward.lengths = EqualLengths(1, 70, sk);
      c.forward.mask.mode = 3;
      c.forward.sink = true;
      reference::Problem values = MakeReferenceProblem(c.forward);
      values.sink[1] = INFINITY;
      values.sink[2] = -INFINITY;
      const reference::Gradients g = Run(c, values).gradients;
      for (int64_t x = 70 * 16; x < 2 * 70 * 16; ++x) ASSERT_EQ(g.dq[x], 0);
      for (int64_t x = sk * 16; x < 2 * sk * 16; ++x) ASSERT_EQ(g.dk[x], 0);
      for (int64_t x = sk * 16; x < 2 * sk * 16; ++x) ASSERT_EQ(g.dv[x], 0);
      EXPECT_NE(g.dsink[0], 0);
      EXPECT_EQ(g.dsink[1], 0);
      EXPECT_EQ(g.dsink[2], 0);
    }
  }
}

TEST_P(BackwardNonFinite, OutputGradientSpoilsItsColumnOfValues) {
  BackwardCase c = Usual();
  c.forward.mask.mode = 2;
  BackwardValues values = MakeBackwardValues(c);
  values.d_out[values.problem.QueryRow(0, 0, 33, 16) + 7] = NAN;
  const reference::Gradients g = Run(c, values).gradients;
  ExpectSpoiltRows(g.dq, 33, 1);
  ExpectSpoiltRows(g.dk, 0, 34);
  for (size_t x = 0; x < g.dv.size(); ++x) ASSERT_EQ(std::isnan(g.dv[x]), x < 34 * 16 && x % 16 == 7) << x;
}

TEST_P(BackwardNonFinite, BiasSpoilsItsRow) {
  for (const auto type : {reference::PseType::kScaleThenAdd, reference::PseType::kAddThenScale}) {
    BackwardCase c = Usual();
    c.forward.pse = PseForm::kFull;
    c.forward.pse_type = type;
    c.forward.mask.mode = 2;
    reference::Problem values = MakeReferenceProblem(c.forward);
    values.pse.values[values.pse.Index(0, 1, 20, 10)] = NAN;
    const reference::Gradients g = Run(c, values).gradients;
    ExpectSpoiltRows(g.dq, 70 + 20, 1);
    ExpectSpoiltRows(g.dk, 300, 21);
    for (size_t x = 0; x < g.dpse.size(); ++x) {
      ASSERT_EQ(std::isnan(g.dpse[x]), x / 300 == 90 && x % 300 < 21) << x;
    }
  }
}

// An inf in V or in the output's gradient makes products of +inf and -inf, but scores stay finite.
TEST_P(BackwardNonFinite, InfiniteValuesAndOutputGradients) {
  for (const double value : {static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    for (const int mode : {1, 2, 3}) {
      BackwardCase c = Usual();
      c.forward.mask.mode = mode;
      reference::Problem problem = MakeReferenceProblem(c.forward);
      problem.v[problem.KeyRow(0, 1, 33, 16) + 7] = value;
      Run(c, problem);
      BackwardValues values = MakeBackwardValues(c);
      values.d_out[values.problem.QueryRow(0, 0, 33, 16) + 7] = value;
      Run(c, values);
    }
  }
}

TEST_P(BackwardNonFinite, RandomCases) {
  const int cases = RandomCases(240) / 6;
  for (int seed = 7001; seed < 7001 + cases; ++seed) {
    BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
    c.forward.dtype = GetParam();
    c.forward.pse_minus_inf_share = 0;
    c.forward.dropout = DropoutForm::kNone;  // NaN at a dropped pair has no specified result
    c.forward.keep_prob = 1;
    reference::Problem problem = MakeReferenceProblem(c.forward);
    const auto place = [&](const std::vector<double>& values) {
      return RandomBits(c.forward.seed, Tag::kChoice, {-2}) % values.size();
    };
    BackwardValues values = MakeBackwardValues(c);
    if (seed % 4 == 3) {
      if (values.d_out.empty()) continue;
      values.d_out[place(values.d_out)] = NAN;
    } else {
      std::vector<double>* const targets[] = {&problem.q, &problem.k, &problem.v};
      std::vector<double>* target = targets[seed % 4];
      if (target->empty()) continue;
      (*target)[place(*target)] = NAN;
      values = MakeBackwardValues(c, problem);
    }
    Run(c, values);
  }
}

INSTANTIATE_TEST_SUITE_P(DType, BackwardNonFinite, ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
