// Tests rows that see no key, keys that no row sees, and rows after the last sequence. Their gradients must be exactly
// 0, and no other gradient may depend on them.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <functional>

#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

BackwardCase Usual() {
  BackwardCase c;
  c.forward.heads = 4;
  c.forward.heads_kv = 2;
  c.forward.lengths = EqualLengths(2, 40, 70);
  return c;
}

void ExpectAllZero(const std::vector<double>& values) {
  for (size_t x = 0; x < values.size(); ++x) ASSERT_EQ(values[x], 0) << x;
}

/// Expects all gradients to be 0 on every level.
void ExpectNoGradient(const BackwardCase& c) {
  const BackwardProblem problem(c);
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    const BackwardOutputs outputs = OutputsOf(problem, ContextOf(isa));
    const reference::Gradients& g = outputs.gradients;
    for (const auto* values : {&g.dq, &g.dk, &g.dv, &g.dpse, &g.dslopes, &g.dsink, &outputs.tail}) {
      ExpectAllZero(*values);
    }
    EXPECT_EQ(g.dq.size(), problem.values().problem.q.size());
  }
}

TEST(BackwardRowsWithoutKeys, ByABandThatMissesEverything) {
  BackwardCase c = Usual();
  c.forward.mask = {.mode = 4, .pre = -100, .next = 300};
  ExpectNoGradient(c);
}

TEST(BackwardRowsWithoutKeys, ByTheDenseMask) {
  BackwardCase c = Usual();
  c.forward.dense_mask = MaskForm::kPlane;
  c.forward.dense_mask_share = 1;
  ExpectNoGradient(c);
}

TEST(BackwardRowsWithoutKeys, ByTheDenseMaskUnderASink) {
  BackwardCase c = Usual();
  c.forward.dense_mask = MaskForm::kPlane;
  c.forward.dense_mask_share = 1;
  c.forward.sink = true;
  ExpectNoGradient(c);
}

TEST(BackwardRowsWithoutKeys, ByAFloatMask) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const PseForm form : {PseForm::kFull, PseForm::kRow}) {
      BackwardCase c = Usual();
      c.forward.dtype = dtype;
      c.forward.pse = form;
      c.forward.pse_type = reference::PseType::kScaleThenAdd;
      c.forward.pse_minus_inf_share = 1;
      ExpectNoGradient(c);
    }
  }
}

TEST(BackwardRowsWithoutKeys, NoKeysAtAll) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSH, Layout::kTND}) {
    for (const bool sink : {false, true}) {
      BackwardCase c = Usual();
      c.forward.layout = layout;
      c.forward.sink = sink;
      c.forward.lengths = EqualLengths(2, 9, 0);
      ExpectNoGradient(c);
    }
  }
}

TEST(BackwardRowsWithoutKeys, NoQueriesAtAll) {
  BackwardCase c = Usual();
  c.forward.sink = true;
  c.forward.lengths = EqualLengths(2, 0, 300);
  ExpectNoGradient(c);
}

TEST(BackwardRowsWithoutKeys, PackedTailsAreZeroInEveryGradient) {
  BackwardCase c = Usual();
  c.forward.layout = Layout::kTND;
  c.forward.d_rope = 8;
  c.forward.lengths = {{3, 0, 5, 2}, {4, 6, 0, 3}};
  c.forward.tail_q = 70;
  c.forward.tail_kv = 150;
  const BackwardProblem problem(c);
  for (const Isa isa : IsaLevels()) {
    problem.ForgetOutputs();
    const BackwardOutputs outputs = OutputsOf(problem, ContextOf(isa));
    ASSERT_EQ(outputs.tail.size(), 70U * 4 * (16 + 8) + 150U * 2 * (16 + 16 + 8));
    ExpectAllZero(outputs.tail);
  }
}

/// A mask under which some rows of sequence 0, head 1 have no keys. All other gradients must be the same with and
/// without those rows.
struct Scheme {
  const char* name;
  std::function<void(ForwardCase*)> mask;
};

const Scheme kSchemes[] = {{"Causal",
                            [](ForwardCase* c) {
                              c->mask.mode = 3;
                              c->lengths = EqualLengths(2, 90, 20);
                            }},
                           {"Band", [](ForwardCase* c) {
                              c->mask = {.mode = 4, .pre = -60, .next = 70};
                              c->lengths = EqualLengths(2, 90, 90);
                            }}};

class BackwardRowsWithoutKeysAmongOthers : public ::testing::TestWithParam<Scheme> {};

// No bit of any gradient may depend on queries and output gradients of rows without keys.
TEST_P(BackwardRowsWithoutKeysAmongOthers, DoNotDisturbThem) {
  BackwardCase c = Usual();
  GetParam().mask(&c.forward);
  BackwardValues values = MakeBackwardValues(c);
  const BackwardProblem usual(c, values);
  const ForwardCase& f = c.forward;
  int64_t rows = 0;
  for (size_t row = 0; row < values.forward.sum.size(); ++row) {
    if (values.forward.sum[row] != static_cast<double>(FLT_MAX)) continue;
    std::fill_n(values.d_out.begin() + static_cast<int64_t>(row) * f.dv, f.dv, 1e30);
    std::fill_n(values.problem.q.begin() + static_cast<int64_t>(row) * f.d, f.d, -1e30);
    ++rows;
  }
  ASSERT_GT(rows, 0);
  const BackwardProblem disturbed(c, values);
  for (const Isa isa : IsaLevels()) {
    const BackwardOutputs outputs = OutputsOf(disturbed, ContextOf(isa));
    EXPECT_TRUE(SameBits(OutputsOf(usual, ContextOf(isa)), outputs)) << Name(isa);
    for (size_t row = 0; row < values.forward.sum.size(); ++row) {
      if (values.forward.sum[row] != static_cast<double>(FLT_MAX)) continue;
      for (int64_t x = 0; x < f.d; ++x) ASSERT_EQ(outputs.gradients.dq[row * 16 + x], 0) << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mask, BackwardRowsWithoutKeysAmongOthers, ::testing::ValuesIn(kSchemes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa::test
