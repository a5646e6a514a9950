// Tests that masked elements are never read. A poison lies where no kept pair reads: in queries, keys, values, biases,
// output gradients, and the padding between rows. The gradients must match the reference. In every test NaN lies around
// the buffers.
#include "support/poison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/cases/random_backward_case.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

enum class Poison : uint8_t { kNaN, kInfinity, kNegativeInfinity, kLargest };

double ValueOf(Poison poison, DType dtype) {
  switch (poison) {
    case Poison::kNaN: return NAN;
    case Poison::kInfinity: return INFINITY;
    case Poison::kNegativeInfinity: return -INFINITY;
    case Poison::kLargest: return LargestFinite(dtype);
  }
  return 0;
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// Puts `poison` into d_out of rows that see no key. @return the number of poisoned elements
int64_t PoisonUnseenGradients(double poison, BackwardValues* values) {
  const reference::Problem& p = values->problem;
  if (!p.sink.empty()) return 0;  // a row that sees no key sees the sink
  int64_t count = 0;
  for (int64_t b = 0; b < p.batch(); ++b) {
    for (int64_t n = 0; n < p.heads; ++n) {
      for (int64_t i = 0; i < p.lengths.sq[b]; ++i) {
        bool seen = false;
        for (int64_t j = 0; j < p.lengths.sk[b] && !seen; ++j) seen = Keeps(p, b, n, i, j);
        if (seen) continue;
        std::fill_n(values->d_out.begin() + p.QueryRow(b, n, i, p.dv), p.dv, poison);
        count += p.dv;
      }
    }
  }
  return count;
}

class BackwardPoison : public ::testing::TestWithParam<Poison> {
 protected:
  static int64_t Apply(const BackwardCase& c, BackwardValues* values) {
    const double poison = ValueOf(GetParam(), c.forward.dtype);
    return PoisonUnseen(poison, &values->problem) + PoisonUnseenGradients(poison, values);
  }
  static void ExpectUnseen(const BackwardCase& c) {
    BackwardValues values = MakeBackwardValues(c);
    ASSERT_GT(Apply(c, &values), 0) << "a case that poisons nothing tests nothing";
    EXPECT_TRUE(RunsLikeTheReference(BackwardProblem(c, values)));
  }
};

TEST_P(BackwardPoison, KeysAfterACausalEnd) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.mask.mode = 2;
    c.forward.lengths = EqualLengths(1, 100, 300);
    ExpectUnseen(c);
  }
}

TEST_P(BackwardPoison, KeysOnBothSidesOfABand) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.mask = {.mode = 4, .pre = 10, .next = -5};
    c.forward.lengths = EqualLengths(1, 45, 301);
    ExpectUnseen(c);
  }
}

TEST_P(BackwardPoison, SingleKeysOfADenseMask) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.dense_mask = MaskForm::kPlane;
    c.forward.dense_mask_share = 0.9;
    c.forward.lengths = EqualLengths(1, 9, 261);
    ExpectUnseen(c);
  }
}

TEST_P(BackwardPoison, SingleQueriesOfADenseMask) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.heads = 3;
    c.forward.dense_mask = MaskForm::kPerHead;
    c.forward.dense_mask_share = 0.9;
    c.forward.lengths = EqualLengths(1, 150, 8);
    ExpectUnseen(c);
  }
}

TEST_P(BackwardPoison, BiasesAboveTheDiagonal) {
  for (const auto type : {reference::PseType::kScaleThenAdd, reference::PseType::kAddThenScale}) {
    for (const DType dtype : kDTypes) {
      BackwardCase c;
      c.forward.dtype = dtype;
      c.forward.mask.mode = 3;
      c.forward.pse = PseForm::kFull;
      c.forward.pse_type = type;
      c.forward.lengths = EqualLengths(1, 140, 140);
      ExpectUnseen(c);
    }
  }
}

TEST_P(BackwardPoison, QueriesAndGradientsOfRowsWithoutKeys) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.heads = 2;
    c.forward.mask.mode = 3;
    c.forward.lengths = EqualLengths(2, 150, 20);
    ExpectUnseen(c);
    c.forward.softcap = 2;
    c.forward.pse = PseForm::kSlopes;
    c.forward.pse_type = reference::PseType::kSlopes;
    ExpectUnseen(c);
  }
}

TEST_P(BackwardPoison, QueriesAndGradientsOfSequencesWithoutKeys) {
  for (const DType dtype : kDTypes) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.layout = Layout::kTND;
    c.forward.d_rope = 4;
    c.forward.lengths = {{3, 40, 20, 0}, {4, 0, 60, 7}};
    ExpectUnseen(c);
  }
}

// Some rows see an element and others do not. The rows that do not see it must have the same bits whatever it is.
TEST(BackwardPoisonedPlace, IsNotNoticedByThoseWhoDoNotSeeIt) {
  for (const DType dtype : kDTypes) {
    for (const int64_t place : {0, 31, 64, 149}) {
      BackwardCase c;
      c.forward.dtype = dtype;
      c.forward.mask.mode = 3;
      c.forward.lengths = EqualLengths(1, 150, 150);
      const reference::Problem clean = MakeReferenceProblem(c.forward);
      for (const auto part : {&reference::Problem::q, &reference::Problem::k, &reference::Problem::v}) {
        reference::Problem problem = clean;
        (problem.*part)[place * 16 + 3] = NAN;
        EXPECT_TRUE(RunsLikeTheReference(BackwardProblem(c, MakeBackwardValues(c, problem)))) << place;
      }
      BackwardValues values = MakeBackwardValues(c);
      values.d_out[place * 16 + 3] = NAN;
      EXPECT_TRUE(RunsLikeTheReference(BackwardProblem(c, values))) << "d_out " << place;
    }
  }
}

TEST_P(BackwardPoison, RandomCases) {
  const int cases = RandomCases(240) / 8;
  for (int seed = 5001; seed < 5001 + cases; ++seed) {
    BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
    c.forward.pse_minus_inf_share = 0;  // a bias of -inf is no mask and follows IEEE rules
    BackwardValues values = MakeBackwardValues(c);
    Apply(c, &values);
    EXPECT_TRUE(RunsLikeTheReference(BackwardProblem(c, values)));
  }
}

std::string PoisonName(const ::testing::TestParamInfo<Poison>& info) {
  constexpr const char* kNames[] = {"NaN", "Infinity", "NegativeInfinity", "Largest"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Poison, BackwardPoison,
                         ::testing::Values(Poison::kNaN, Poison::kInfinity, Poison::kNegativeInfinity,
                                           Poison::kLargest),
                         PoisonName);

}  // namespace
}  // namespace fa::test
