// A non-finite key spreads by IEEE arithmetic into the gradients of the tokens that see it. All other results keep the
// bits of a run on finite values. ReLU keeps a NaN; its derivative at a NaN is 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/indexer/indexer_case.h"
#include "ops/indexer/loss_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kColumn = 5;

TokenCase Tokens(DType dtype) {
  TokenCase tokens;
  tokens.dtype = dtype;
  tokens.lengths = {{6, 3}, {50, 20}};
  tokens.slots = 12;
  tokens.lists = ListForm::kMessy;
  return tokens;
}

/// Returns a key of sequence 0 that token 2 sees. For the dense loss it lies beyond the limits of tokens 0 and 1.
int64_t SelectedKey(const reference::Selection& selection, bool dense) {
  return dense ? selection.Limit(0, 2) - 1 : selection.KeysOf(0, 2).front().key;
}

/// Sets one element of an indexer's key to `value`, and its other elements to 0.
void SetKey(int64_t key, int64_t d, double value, std::vector<double>* k) {
  std::fill_n(k->begin() + key * d, d, 0.0);
  (*k)[key * d + kColumn] = value;
}

std::vector<ExpectedOutput> WithoutTolerance(const reference::IndexerGradients& want) {
  return {{"dq", want.dq, {}}, {"dk", want.dk, {}}, {"dweights", want.dweights, {}}};
}

/// Expects on every level: NaN and inf of `call` are exactly where `expected` has them, and all other bits are those of
/// `finite`.
template <typename Call>
void ExpectSpread(const Call& call, const std::vector<ExpectedOutput>& expected, const Call& finite) {
  for (const Isa isa : IsaLevels()) {
    finite.TakeSnapshot().Forget();
    call.TakeSnapshot().Forget();
    ASSERT_TRUE(finite.Run(ContextOf(isa)).ok());
    ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
    EXPECT_TRUE(SpreadsAsExpected(call.Outputs(), expected, finite.Outputs())) << IsaName(isa);
  }
}

class IndexerNonFinite : public ::testing::TestWithParam<DType> {};

// `finite` and `poison` give products of the same signs, so ReLU has the same derivatives. Only the gradients of the
// weights and of one column of queries change.
TEST_P(IndexerNonFinite, KeysSpoilWeightsAndAColumnOfQueries) {
  const IndexerCase c{.tokens = Tokens(GetParam()), .heads = 18, .d = 40};
  for (const auto& [poison, finite] : {std::pair{kNan, 0.0}, {kInf, 1.0}, {-kInf, -1.0}}) {
    reference::IndexerProblem values = MakeReferenceProblem(c);
    const int64_t key = SelectedKey(values.selection, false);
    SetKey(key, c.d, finite, &values.k);
    const IndexerGradCall usual(c, values);
    SetKey(key, c.d, poison, &values.k);
    const IndexerGradCall call(c, values);
    ExpectSpread(call, WithoutTolerance(IndexerBackward(call.values(), call.d_values())), usual);
  }
}

class LossNonFinite : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  static LossCase Usual(bool l1) {
    const auto [dtype, dense] = GetParam();
    return {.tokens = Tokens(dtype), .dense = dense, .heads = 6, .heads_index = 5, .d_index = 40, .l1 = l1};
  }
  static void Expect(const LossCase& c, const reference::LossProblem& values, const reference::LossProblem& finite) {
    const reference::LossResult want = reference::IndexerLoss(values);
    std::vector<ExpectedOutput> expected = WithoutTolerance(want.gradients);
    expected.push_back({"loss", {want.loss}, {}});
    ExpectSpread(LossCall(c, values), expected, LossCall(c, finite));
  }
};

TEST_P(LossNonFinite, KeysOfTheIndexer) {
  for (const bool l1 : {false, true}) {
    const LossCase c = Usual(l1);
    reference::LossProblem finite = MakeReferenceProblem(c);
    const int64_t key = SelectedKey(finite.indexer.selection, c.dense);
    SetKey(key, c.d_index, 0, &finite.indexer.k);
    reference::LossProblem values = finite;
    SetKey(key, c.d_index, kNan, &values.indexer.k);
    Expect(c, values, finite);
  }
}

TEST_P(LossNonFinite, KeysOfTheAttention) {
  for (const bool l1 : {false, true}) {
    const LossCase c = Usual(l1);
    const reference::LossProblem finite = MakeReferenceProblem(c);
    reference::LossProblem values = finite;
    values.attention.k[SelectedKey(values.indexer.selection, c.dense) * c.d + kColumn] = kNan;
    Expect(c, values, finite);
  }
}

INSTANTIATE_TEST_SUITE_P(DType, IndexerNonFinite, ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return Name(info.param); });
INSTANTIATE_TEST_SUITE_P(Kind, LossNonFinite,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param) ? "Dense_" : "Sparse_") +
                                  Name(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace fa::test
