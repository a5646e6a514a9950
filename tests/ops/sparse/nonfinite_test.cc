// A non-finite key spreads by IEEE arithmetic into the outputs and gradients of the tokens whose lists name it. From
// there it spreads into the gradients of these tokens' other keys. All other results keep the bits of a run on finite
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ops/sparse/sparse_case.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

SparseCase Usual(DType dtype, int64_t heads, bool merged) {
  SparseCase c{.heads = heads, .d = 24, .d_rope = 8, .dv = 24, .merged = merged};
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{6, 3}, {50, 20}};
  c.tokens.slots = 12;
  c.tokens.lists = ListForm::kMessy;
  return c;
}

/// Returns a key that token 2 of sequence 0 sees.
int64_t SelectedKey(const reference::SparseProblem& values) { return values.selection.KeysOf(0, 2).front().key; }

/// Runs the backward on `values` on every level. Where the reference is not finite, the results must be the
/// reference's.
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

class SparseBackwardNonFinite : public ::testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  [[nodiscard]] static SparseCase Case(bool merged) {
    return Usual(std::get<0>(GetParam()), std::get<1>(GetParam()), merged);
  }
};

TEST_P(SparseBackwardNonFinite, KeysSpoilTheirTokensAndAllKeysOfThose) {
  for (const bool merged : {false, true}) {
    const SparseCase c = Case(merged);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.k[SelectedKey(values) * c.d + 5] = kNan;
    ExpectSpread(c, values);
  }
}

TEST_P(SparseBackwardNonFinite, RopesOfKeysSpoilTheSame) {
  for (const bool merged : {false, true}) {
    const SparseCase c = Case(merged);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.k_rope[SelectedKey(values) * c.d_rope + 7] = kNan;
    ExpectSpread(c, values);
  }
}

// The gradient of V is P^T dO, which does not depend on V.
TEST_P(SparseBackwardNonFinite, ValuesLeaveTheGradientsOfValuesAlone) {
  for (const double poison : {kNan, kInf, -kInf}) {
    const SparseCase c = Case(false);
    reference::SparseProblem values = MakeReferenceProblem(c);
    values.v[SelectedKey(values) * c.dv + 3] = poison;
    ExpectSpread(c, values);
  }
}

/// Returns a case of so few heads that kernels read keys in place. With up to two heads, blocks have 64 keys, and a
/// list has three blocks. With more heads, blocks have 128 keys, and a list has two.
SparseCase FewHeads(DType dtype, int64_t heads) {
  SparseCase c{.heads = heads, .d = 24, .d_rope = 8, .dv = 24};
  c.tokens.dtype = dtype;
  c.tokens.lengths = {{2}, {300}};
  c.tokens.slots = 140;
  return c;
}

/// Returns the keys that token t's list names, in ascending order.
std::vector<int64_t> KeysOf(const reference::SparseProblem& values, int64_t t) {
  std::vector<int64_t> keys;
  for (const reference::SelectedKey& at : values.selection.KeysOf(0, t)) keys.push_back(at.key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

bool Names(const reference::SparseProblem& values, int64_t t, int64_t key) {
  const std::vector<int64_t> keys = KeysOf(values, t);
  return std::binary_search(keys.begin(), keys.end(), key);
}

class SparseForwardNonFinite : public ::testing::TestWithParam<DType> {};

TEST_P(SparseForwardNonFinite, ValuesSpoilTheOutputsOfTheTokensThatNameThem) {
  const auto check = [&](int64_t heads) {
    const SparseCase c = FewHeads(GetParam(), heads);
    const reference::SparseProblem usual = MakeReferenceProblem(c);
    const std::vector<int64_t> keys = KeysOf(usual, 0);
    // Takes one key from each block of the token's keys. The other token's list must not name it.
    for (const int64_t begin : {0, 64, 128}) {
      const auto block_end = keys.begin() + std::min(begin + 64, std::ssize(keys));
      const auto found =
          std::find_if(keys.begin() + begin, block_end, [&](int64_t key) { return !Names(usual, 1, key); });
      ASSERT_NE(found, block_end);
      const int64_t key = *found;
      for (const double poison : {kNan, kInf, -kInf}) {
        reference::SparseProblem values = usual;
        std::fill_n(&values.v[key * c.dv], c.dv, poison);
        const SparseCall call(c, std::move(values));
        const reference::SparseResult want = reference::SparseForward(call.values());
        const std::vector<ExpectedOutput> expected = {
            {"out", want.out, {}}, {"max", want.max, {}}, {"sum", want.sum, {}}, {"p_head_mean", want.p_head_mean, {}}};
        for (const Isa isa : IsaLevels()) {
          call.TakeSnapshot().Forget();
          ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
          EXPECT_TRUE(SpreadsAsExpected(call.Outputs(), expected, ForwardOf(c, ContextOf(isa))))
              << IsaName(isa) << " " << c << " key " << key << " " << poison;
        }
      }
    }
  };
  ForEachCase(check, Axis{"heads", {1, 2, 12, 16}});
}

TEST_P(SparseForwardNonFinite, KeysThatNobodyNamesSpoilNothing) {
  for (const int64_t heads : {1, 2, 12, 16}) {
    const SparseCase c = FewHeads(GetParam(), heads);
    for (const double poison : {kNan, kInf, -kInf}) {
      reference::SparseProblem values = MakeReferenceProblem(c);
      int64_t poisoned = 0;
      for (int64_t key = 0; key < 300; ++key) {
        if (Names(values, 0, key) || Names(values, 1, key)) continue;
        ++poisoned;
        std::fill_n(&values.v[key * c.dv], c.dv, poison);
      }
      ASSERT_GT(poisoned, 10);
      const SparseCall call(c, std::move(values));
      for (const Isa isa : IsaLevels()) {
        call.TakeSnapshot().Forget();
        ASSERT_TRUE(call.Run(ContextOf(isa)).ok());
        EXPECT_TRUE(SameBits(call.Outputs(), ForwardOf(c, ContextOf(isa)))) << IsaName(isa) << " " << c << poison;
      }
    }
  }
}

std::string NonfiniteName(const ::testing::TestParamInfo<std::tuple<DType, int64_t>>& info) {
  return Name(std::get<0>(info.param)) + std::string("_") + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(DType, SparseBackwardNonFinite,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(18)),
                         NonfiniteName);
// With these numbers of heads, some levels have kernels that read keys in place.
INSTANTIATE_TEST_SUITE_P(FewHeads, SparseBackwardNonFinite,
                         ::testing::Combine(::testing::Values(DType::kBF16), ::testing::Values(12, 16)), NonfiniteName);
INSTANTIATE_TEST_SUITE_P(DType, SparseForwardNonFinite, ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
