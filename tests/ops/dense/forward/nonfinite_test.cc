// NaN and inf in inputs spread by IEEE arithmetic into the rows that see them, and into no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "support/cases/random_forward_case.h"
#include "support/cases/random_values.h"
#include "support/compare/compare.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class ForwardNonFinite : public ::testing::TestWithParam<DType> {
 protected:
  /// Returns a case of two heads with 70 rows and 300 keys.
  static ForwardCase Usual() {
    ForwardCase c;
    c.dtype = GetParam();
    c.heads = c.heads_kv = 2;
    c.lengths = EqualLengths(1, 70, 300);
    return c;
  }
  /// Returns a case of two heads with `rows` rows and 600 keys, which are more than two blocks of keys.
  static ForwardCase Scaled(float scale, int64_t rows) {
    ForwardCase c = Usual();
    c.d = c.dv = 64;
    c.lengths = EqualLengths(1, rows, 600);
    c.scale = scale;
    return c;
  }
  static void ExpectSpreadsAsInTheReference(const ForwardCase& c, const reference::Problem& values) {
    EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values)));
  }
};

constexpr double kValues[] = {NAN, INFINITY, -INFINITY};

TEST_P(ForwardNonFinite, QuerySpoilsItsRow) {
  const auto check = [](double value, float scale) {
    ForwardCase c = Usual();
    c.scale = scale;
    reference::Problem values = MakeReferenceProblem(c);
    values.q[values.QueryRow(0, 1, 33, c.d) + 5] = value;
    ExpectSpreadsAsInTheReference(c, values);
    const ForwardProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      const ForwardOutputs outputs = OutputsOf(problem, ContextOf(isa));
      for (size_t x = 0; x < outputs.out.size(); ++x) {
        ASSERT_EQ(std::isnan(outputs.out[x]), static_cast<int64_t>(x) / c.dv == 70 + 33) << IsaName(isa) << " " << x;
      }
    }
  };
  ForEachCase(check, Axis{"value", kValues}, Axis{"scale", {0.1F, 0.0F}});
}

// Different code finishes the rows of a call with statistics and of a call without statistics.
TEST_P(ForwardNonFinite, SpoiledRowsHaveTheirBitsWhateverStatisticsAreAskedFor) {
  for (const double value : kValues) {
    ForwardCase c = Usual();
    reference::Problem values = MakeReferenceProblem(c);
    values.q[values.QueryRow(0, 1, 33, c.d) + 5] = value;
    for (const Isa isa : IsaLevels()) {
      c.wants_max = c.wants_sum = c.wants_lse = true;
      const ForwardOutputs all = OutputsOf(ForwardProblem(c, values), ContextOf(isa));
      c.wants_max = c.wants_sum = c.wants_lse = false;
      const ForwardOutputs none = OutputsOf(ForwardProblem(c, values), ContextOf(isa));
      ASSERT_EQ(none.out.size(), all.out.size());
      ASSERT_EQ(std::memcmp(none.out.data(), all.out.data(), all.out.size() * sizeof(all.out[0])), 0)
          << IsaName(isa) << " " << value;
    }
  }
}

TEST_P(ForwardNonFinite, KeySpoilsTheRowsOfItsHeadThatSeeIt) {
  for (const double value : kValues) {
    for (const int mode : {1, 2, 3}) {
      ForwardCase c = Usual();
      c.mask.mode = mode;
      reference::Problem values = MakeReferenceProblem(c);
      values.k[values.KeyRow(0, 0, 40, c.d) + 2] = value;
      ExpectSpreadsAsInTheReference(c, values);
    }
  }
}

TEST_P(ForwardNonFinite, ValueSpoilsItsColumnInTheRowsThatSeeIt) {
  for (const double value : kValues) {
    for (const int mode : {1, 2, 3}) {
      ForwardCase c = Usual();
      c.mask.mode = mode;
      reference::Problem values = MakeReferenceProblem(c);
      values.v[values.KeyRow(0, 1, 33, c.dv) + 7] = value;
      ExpectSpreadsAsInTheReference(c, values);
    }
  }
}

TEST_P(ForwardNonFinite, BiasSpoilsItsRow) {
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    for (const auto type : {reference::PseType::kScaleThenAdd, reference::PseType::kAddThenScale}) {
      ForwardCase c = Usual();
      c.pse = PseForm::kFull;
      c.pse_type = type;
      reference::Problem values = MakeReferenceProblem(c);
      values.pse.values[values.pse.Index(0, 1, 20, 270)] = value;
      ExpectSpreadsAsInTheReference(c, values);
    }
  }
}

TEST_P(ForwardNonFinite, SinkThatIsNoNumberSpoilsItsHead) {
  ForwardCase c = Usual();
  c.sink = true;
  reference::Problem values = MakeReferenceProblem(c);
  values.sink[1] = NAN;
  ExpectSpreadsAsInTheReference(c, values);
}

// A sink of +inf takes all the weight of its head, and a sink of -inf takes none. If there are few rows, the keys are
// cut into parts. The causal mask leaves some rows without keys.
TEST_P(ForwardNonFinite, InfiniteSinkTakesEverythingOrNothing) {
  const auto check = [&](Layout layout, int64_t sq, int64_t sk, int mode) {
    ForwardCase c = Usual();
    c.layout = layout;
    c.heads = 4;
    c.lengths = EqualLengths(1, sq, sk);
    c.mask.mode = mode;
    c.sink = true;
    reference::Problem values = MakeReferenceProblem(c);
    values.sink[1] = INFINITY;
    values.sink[2] = -INFINITY;
    ExpectSpreadsAsInTheReference(c, values);
    const ForwardProblem infinite(c, values);
    values.sink[1] = 3e38;
    const ForwardProblem overwhelming(c, values);
    for (const Isa isa : IsaLevels()) {
      const ForwardOutputs got = OutputsOf(infinite, ContextOf(isa));
      EXPECT_EQ(got.out, OutputsOf(overwhelming, ContextOf(isa)).out) << IsaName(isa) << " " << c;
      for (int64_t row = sq; row < 2 * sq; ++row) {
        EXPECT_EQ(got.max[row], INFINITY);
        EXPECT_EQ(got.sum[row], 1);
        EXPECT_EQ(got.lse[row], INFINITY);
        for (int64_t x = 0; x < c.dv; ++x) ASSERT_EQ(got.out[row * c.dv + x], 0) << IsaName(isa) << " " << c;
      }
    }
  };
  ForEachCase(check, Axis{"layout", {Layout::kBNSD, Layout::kTND}}, Axis{"sq", {1, 4, 70}}, Axis{"sk", {40, 1500}},
              Axis{"mode", {1, 3}});
}

TEST_P(ForwardNonFinite, SoftcapOfAnInfiniteScoreIsTheCap) {
  for (const double value : {static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    ForwardCase c = Usual();
    c.softcap = 2;
    reference::Problem values = MakeReferenceProblem(c);
    values.k[values.KeyRow(0, 0, 40, c.d) + 2] = value;
    ExpectSpreadsAsInTheReference(c, values);
  }
}

/// Returns a problem with the given scores: one column of Q is 1, and the same column of K holds the scores.
reference::Problem ProblemOfScores(const ForwardCase& c, const std::function<double(int64_t)>& score) {
  reference::Problem values = MakeReferenceProblem(c);
  std::fill(values.q.begin(), values.q.end(), 0.0);
  std::fill(values.k.begin(), values.k.end(), 0.0);
  for (int64_t head = 0; head < c.heads; ++head) {
    for (int64_t row = 0; row < c.lengths.sq[0]; ++row) values.q[values.QueryRow(0, head, row, c.d) + 3] = 1;
    for (int64_t key = 0; key < c.lengths.sk[0]; ++key) {
      values.k[values.KeyRow(0, head, key, c.d) + 3] = score(key);
    }
  }
  return values;
}

TEST_P(ForwardNonFinite, ScoresOfAnyFiniteSizeHaveFiniteProbabilities) {
  // The arguments of the exponentials reach 2^26, 2^35, 2^62 and nearly 2^127, positive and negative. Other rows of the
  // same call have a query of 0.
  const auto check = [&](float scale, int64_t rows) {
    const ForwardCase c = Scaled(scale, rows);
    // Along the keys, the maximum of a row rises twice or never.
    reference::Problem values =
        ProblemOfScores(c, [](int64_t key) { return static_cast<double>(key / 250 - 1 + key % 2); });
    for (int64_t head = 0; head < c.heads; ++head) {
      for (int64_t row = 0; row < rows; ++row) {
        values.q[values.QueryRow(0, head, row, c.d) + 3] = static_cast<double>((row + head) % 3 - 1);
      }
    }
    ASSERT_TRUE(RunsLikeTheReference(ForwardProblem(c, values))) << scale << " " << rows;
  };
  ForEachCase(check, Axis{"scale", {0x1p24f, 0x1p33f, -0x1p60f, 0x1.6p125f}}, Axis{"rows", {1, 2, 4, 70}});
}

TEST_P(ForwardNonFinite, LargeScoresOneUnitApartHaveTheirProbabilities) {
  // The scores of two keys are adjacent f32 numbers. The keys lie in different blocks, and if there are few rows, in
  // different parts. Scaled by 2^24 the scores differ by 2; scaled by 2^60 only the larger has any weight. The other
  // scores are far smaller.
  const auto check = [&](float scale, int64_t rows) {
    const double want = scale == 0x1p24f ? 1 / (1 + std::exp(-2.0)) : 1;
    const ForwardCase c = Scaled(scale, rows);
    reference::Problem values = ProblemOfScores(c, [](int64_t key) { return key == 5 || key == 590 ? 1.5 : 0.0; });
    std::fill(values.v.begin(), values.v.end(), 0.0);
    for (int64_t head = 0; head < c.heads; ++head) {
      // 2^-12 times 2^-11 is one ulp of 1.5 in f32, so the two scores are 1.5 plus 2 ulp and 1.5 plus 3 ulp.
      for (int64_t row = 0; row < rows; ++row) values.q[values.QueryRow(0, head, row, c.d) + 4] = 0x1p-12;
      values.k[values.KeyRow(0, head, 5, c.d) + 4] = 0x1p-11 * 2;
      values.k[values.KeyRow(0, head, 590, c.d) + 4] = 0x1p-11 * 3;
      for (int64_t column = 0; column < c.dv; ++column) values.v[values.KeyRow(0, head, 590, c.dv) + column] = 1;
    }
    const ForwardProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      for (const double out : OutputsOf(problem, ContextOf(isa)).out) {
        ASSERT_NEAR(out, want, GetParam() == DType::kF32 ? 1e-5 : 8e-3) << IsaName(isa) << " " << scale << " " << rows;
      }
    }
  };
  ForEachCase(check, Axis{"scale", {0x1p24f, 0x1p60f}}, Axis{"rows", {1, 2, 4, 70}});
}

TEST_P(ForwardNonFinite, RandomCases) {
  const int cases = RandomCases() / 8;
  for (int seed = 7001; seed < 7001 + cases; ++seed) {
    ForwardCase c = RandomForwardCase(static_cast<uint64_t>(seed));
    c.dtype = GetParam();
    c.pse_minus_inf_share = 0;
    c.dropout = DropoutForm::kNone;  // inf at a dropped pair has no specified result
    c.keep_prob = 1;
    reference::Problem values = MakeReferenceProblem(c);
    std::vector<double>* const targets[] = {&values.q, &values.k, &values.v};
    std::vector<double>* target = targets[seed % 3];
    if (target->empty()) continue;
    // With slopes some probabilities underflow in f32 but not in double. 0 * inf would then differ from the reference,
    // so the value is NaN.
    const double value = c.pse == PseForm::kSlopes ? NAN : kValues[seed / 3 % 3];
    (*target)[RandomBits(c.seed, Tag::kChoice, {-2}) % target->size()] = value;
    ExpectSpreadsAsInTheReference(c, values);
  }
}

INSTANTIATE_TEST_SUITE_P(DType, ForwardNonFinite, ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
