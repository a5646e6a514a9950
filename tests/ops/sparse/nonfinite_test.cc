// A non-finite key reaches the gradients of the tokens whose lists name it, and through them their other keys, as IEEE
// arithmetic says; everything else keeps the bits of a run on finite values.
#include <gtest/gtest.h>

#include <limits>

#include "ops/sparse/sparse_case.h"
#include "support/contexts.h"

namespace fa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

SparseCase Usual(DType dtype, bool merged) {
  SparseCase c{.heads = 18, .d = 24, .d_rope = 8, .dv = 24, .merged = merged};
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{6, 3}, {50, 20}};
  c.tokens.slots = 12;
  c.tokens.lists = ListForm::kMessy;
  return c;
}

/// A key that token 2 of sequence 0 sees.
int64_t SelectedKey(const reference::SparseProblem& values) { return values.selection.KeysOf(0, 2).front().key; }

/// Runs backward on `values` on every level, and what comes out is the reference's where that is not finite.
void ExpectSpread(const SparseCase& c, const reference::SparseProblem& values) {
  const SparseGradCall call(c, values);
  const reference::SparseGradients want = reference::SparseBackward(call.values(), call.forward(), call.d_out());
  std::vector<ExpectedOutput> expected = {
      {"dq", want.dq, {}}, {"dk", want.dk, {}}, {"dq_rope", want.dq_rope, {}}, {"dk_rope", want.dk_rope, {}}};
  if (!c.merged) expected.push_back({"dv", want.dv, {}});
  for (const Isa isa : IsaLevels()) {
    const TokenOutputs finite = BackwardOf(c, ContextOf(isa));
    call.TakeSnapshot().Forget();
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    EXPECT_TRUE(SpreadsAsExpected(call.Outputs(), expected, finite)) << IsaName(isa) << " " << c;
  }
}

class SparseBackwardNonFinite : public ::testing::TestWithParam<DType> {};

TEST_P(SparseBackwardNonFinite, KeysSpoilTheirTokensAndAllKeysOfThose) {
  for (const bool merged : {false, true}) {
    const SparseCase c = Usual(GetParam(), merged);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.k[SelectedKey(values) * c.d + 5] = kNan;
    ExpectSpread(c, values);
  }
}

TEST_P(SparseBackwardNonFinite, RopesOfKeysSpoilTheSame) {
  for (const bool merged : {false, true}) {
    const SparseCase c = Usual(GetParam(), merged);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.k_rope[SelectedKey(values) * c.d_rope + 7] = kNan;
    ExpectSpread(c, values);
  }
}

// What they are multiplied by does not depend on them.
TEST_P(SparseBackwardNonFinite, ValuesLeaveTheGradientsOfValuesAlone) {
  for (const double poison : {kNan, kInf, -kInf}) {
    const SparseCase c = Usual(GetParam(), false);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.v[SelectedKey(values) * c.dv + 3] = poison;
    ExpectSpread(c, values);
  }
}

INSTANTIATE_TEST_SUITE_P(DType, SparseBackwardNonFinite, ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
