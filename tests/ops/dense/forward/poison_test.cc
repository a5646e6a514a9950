// Tests that masked elements are never read. A poison lies where no kept pair reads: in keys, values, queries, biases,
// and the padding between rows. The result must match the reference. In every test NaN lies around the buffers.
#include "support/poison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
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

class ForwardPoison : public ::testing::TestWithParam<Poison> {
 protected:
  static int64_t Apply(const ForwardCase& c, reference::Problem* values) {
    return PoisonUnseen(ValueOf(GetParam(), c.dtype), values);
  }
  static void ExpectUnseen(const ForwardCase& c) {
    reference::Problem values = MakeReferenceProblem(c);
    ASSERT_GT(Apply(c, &values), 0) << "a case that poisons nothing tests nothing";
    EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values)));
  }
};

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST_P(ForwardPoison, KeysAfterACausalEnd) {
  for (const DType dtype : kDTypes) {
    ForwardCase c;
    c.dtype = dtype;
    c.mask.mode = 2;
    c.lengths = EqualLengths(1, 100, 300);
    ExpectUnseen(c);
  }
}

TEST_P(ForwardPoison, KeysOnBothSidesOfABand) {
  for (const DType dtype : kDTypes) {
    ForwardCase c;
    c.dtype = dtype;
    c.mask = {.mode = 4, .pre = 10, .next = -5};
    c.lengths = EqualLengths(1, 45, 301);
    ExpectUnseen(c);
  }
}

TEST_P(ForwardPoison, SingleKeysOfADenseMask) {
  for (const DType dtype : kDTypes) {
    ForwardCase c;
    c.dtype = dtype;
    c.dense_mask = MaskForm::kPlane;
    c.dense_mask_share = 0.9;
    c.lengths = EqualLengths(1, 9, 261);
    ExpectUnseen(c);
  }
}

// The keys of a head are cut into parts, each of which has its own softmax state.
TEST_P(ForwardPoison, SingleKeysOfADenseMaskInPartsOfAHead) {
  for (const DType dtype : kDTypes) {
    for (const int64_t rows : {3, 12}) {
      ForwardCase c;
      c.dtype = dtype;
      c.dense_mask = MaskForm::kPlane;
      c.dense_mask_share = 0.9;
      c.lengths = EqualLengths(1, rows, 1700);
      ExpectUnseen(c);
    }
  }
}

TEST_P(ForwardPoison, BiasesAboveTheDiagonal) {
  for (const auto type : {reference::PseType::kScaleThenAdd, reference::PseType::kAddThenScale}) {
    for (const DType dtype : kDTypes) {
      ForwardCase c;
      c.dtype = dtype;
      c.mask.mode = 3;
      c.pse = PseForm::kFull;
      c.pse_type = type;
      c.lengths = EqualLengths(1, 140, 140);
      ExpectUnseen(c);
    }
  }
}

TEST_P(ForwardPoison, QueriesWithoutKeys) {
  ForwardCase c;
  c.mask.mode = 3;
  c.lengths = EqualLengths(2, 90, 20);
  c.sink = true;
  ExpectUnseen(c);
}

// Some rows see a key and others do not. The rows that do not see it must have the same bits whatever the key is.
TEST_P(ForwardPoison, AKeySeenByLaterRowsOnly) {
  for (const DType dtype : kDTypes) {
    for (const int64_t key : {0, 7, 31, 64, 149}) {
      ForwardCase c;
      c.dtype = dtype;
      c.mask.mode = 3;
      c.lengths = EqualLengths(1, 150, 150);
      reference::Problem values = MakeReferenceProblem(c);
      // The value is 1/16 of the largest number. The largest itself would overflow if exp2 returned one ulp more than
      // 1.
      values.v[key * c.dv + 3] = ValueOf(GetParam(), dtype) / 16;
      EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values))) << "v of key " << key;
      // The largest number in k is left out: a score can then overflow in f32, but not in the reference, which computes
      // in double.
      if (GetParam() == Poison::kLargest) continue;
      values = MakeReferenceProblem(c);
      values.k[key * c.d + 3] = ValueOf(GetParam(), dtype);
      EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values))) << "k of key " << key;
    }
  }
}

TEST_P(ForwardPoison, RandomCases) {
  const int cases = RandomCases() / 8;
  for (int seed = 5001; seed < 5001 + cases; ++seed) {
    ForwardCase c = RandomForwardCase(static_cast<uint64_t>(seed));
    c.pse_minus_inf_share = 0;  // a bias of -inf is no mask and follows IEEE rules
    reference::Problem values = MakeReferenceProblem(c);
    Apply(c, &values);
    EXPECT_TRUE(RunsLikeTheReference(ForwardProblem(c, values)));
  }
}

std::string PoisonName(const ::testing::TestParamInfo<Poison>& info) {
  constexpr const char* kNames[] = {"NaN", "Infinity", "NegativeInfinity", "Largest"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Poison, ForwardPoison,
                         ::testing::Values(Poison::kNaN, Poison::kInfinity, Poison::kNegativeInfinity,
                                           Poison::kLargest),
                         PoisonName);

}  // namespace
}  // namespace fa::test
