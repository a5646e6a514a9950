// Tests the outputs of rows that see no key. These outputs depend on no input.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>

#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class RowsWithoutKeys : public ::testing::TestWithParam<Isa> {
 protected:
  static ForwardOutputs Run(const ForwardCase& c) {
    ForwardProblem problem(c);
    const Status status = problem.Run(ContextOf(GetParam()));
    EXPECT_TRUE(status.ok()) << status.message();
    return problem.Outputs();
  }

  static void ExpectRow(const ForwardOutputs& o, int64_t row, double max, double sum, double lse) {
    EXPECT_EQ(o.max[row], max) << row;
    EXPECT_EQ(o.sum[row], sum) << row;
    EXPECT_EQ(o.lse[row], lse) << row;
  }

  static void ExpectZeroOut(const ForwardOutputs& o) {
    for (const double x : o.out) {
      ASSERT_EQ(x, 0);
      ASSERT_FALSE(std::signbit(x));
    }
  }
};

constexpr double kMaxF = static_cast<double>(FLT_MAX);

TEST_P(RowsWithoutKeys, ByTheRule) {
  ForwardCase c;
  c.lengths = EqualLengths(1, 40, 7);
  c.mask.mode = 3;
  const ForwardOutputs o = Run(c);
  for (int64_t i = 0; i < 33; ++i) ExpectRow(o, i, -kMaxF, kMaxF, -INFINITY);
  for (int64_t i = 33; i < 40; ++i) EXPECT_LT(o.sum[i], 100);
}

TEST_P(RowsWithoutKeys, ByABandThatMissesEverything) {
  ForwardCase c;
  c.lengths = EqualLengths(2, 40, 70);
  c.mask.mode = 4;
  c.mask.pre = -100;
  c.mask.next = 300;
  const ForwardOutputs o = Run(c);
  ExpectZeroOut(o);
  for (int64_t row = 0; row < 80; ++row) ExpectRow(o, row, -kMaxF, kMaxF, -INFINITY);
}

TEST_P(RowsWithoutKeys, ByTheDenseMask) {
  ForwardCase c;
  c.dense_mask = MaskForm::kPlane;
  c.dense_mask_share = 1;
  c.lengths = EqualLengths(1, 40, 300);
  const ForwardOutputs o = Run(c);
  ExpectZeroOut(o);
  for (int64_t row = 0; row < 40; ++row) ExpectRow(o, row, -kMaxF, kMaxF, -INFINITY);
}

TEST_P(RowsWithoutKeys, ByAFloatMask) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForwardCase c;
    c.dtype = dtype;
    c.pse = PseForm::kFull;
    c.pse_type = reference::PseType::kScaleThenAdd;
    c.pse_minus_inf_share = 1;
    c.lengths = EqualLengths(1, 40, 300);
    const ForwardOutputs o = Run(c);
    ExpectZeroOut(o);
    for (int64_t row = 0; row < 40; ++row) ExpectRow(o, row, -kMaxF, kMaxF, -INFINITY);
  }
}

TEST_P(RowsWithoutKeys, WithASinkAllMaskedGivesTheSink) {
  ForwardCase c;
  c.heads = 3;
  c.heads_kv = 1;
  c.sink = true;
  c.dense_mask = MaskForm::kPlane;
  c.dense_mask_share = 1;
  ForwardProblem problem(c);
  ASSERT_TRUE(problem.Run(ContextOf(GetParam())).ok());
  const ForwardOutputs o = problem.Outputs();
  ExpectZeroOut(o);
  for (int64_t n = 0; n < 3; ++n) {
    const double sink = problem.values().sink[n];
    for (int64_t i = 0; i < 16; ++i) ExpectRow(o, n * 16 + i, sink, 1, sink);
  }
}

TEST_P(RowsWithoutKeys, NoKeysAtAllGivesZeros) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSH, Layout::kTND}) {
    for (const bool sink : {false, true}) {
      ForwardCase c;
      c.layout = layout;
      c.sink = sink;
      c.lengths = EqualLengths(2, 9, 0);
      const ForwardOutputs o = Run(c);
      ExpectZeroOut(o);
      for (int64_t row = 0; row < 18; ++row) ExpectRow(o, row, 0, 0, -INFINITY);
    }
  }
}

TEST_P(RowsWithoutKeys, PackedSequenceWithoutKeysAmongOthers) {
  ForwardCase c;
  c.layout = Layout::kTND;
  c.lengths = {{3, 5, 2}, {4, 0, 6}};
  const ForwardOutputs o = Run(c);
  for (int64_t row = 3; row < 8; ++row) ExpectRow(o, row, 0, 0, -INFINITY);
  for (const int64_t row : {0, 1, 2, 8, 9}) EXPECT_GE(o.sum[row], 1);
}

TEST_P(RowsWithoutKeys, PackedTailIsZeroInEveryOutput) {
  ForwardCase c;
  c.layout = Layout::kTND;
  c.lengths = {{3, 5}, {4, 6}};
  c.tail_q = 70;
  const ForwardOutputs o = Run(c);
  ASSERT_EQ(o.tail.size(), 70U * (16 + 3));
  for (const double x : o.tail) ASSERT_EQ(x, 0);
}

INSTANTIATE_TEST_SUITE_P(Isa, RowsWithoutKeys, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
