// If the softmax gives a row's whole weight to one key, the output is that key's row of V, bit by bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

class ForwardOneKey : public ::testing::TestWithParam<DType> {
 protected:
  static ForwardCase Usual(int64_t sq, int64_t sk) {
    ForwardCase c;
    c.dtype = GetParam();
    c.heads = 4;
    c.heads_kv = 2;
    c.d = 24;
    c.dv = 40;
    c.lengths = EqualLengths(2, sq, sk);
    return c;
  }
  /// @param key_of  returns the key of a row, or a negative number if the row's output is not checked
  static void ExpectItsValue(const ForwardCase& c, const reference::Problem& p,
                             const std::function<int64_t(int64_t)>& key_of) {
    const ForwardProblem problem(c, p);
    for (const Isa isa : IsaLevels()) {
      problem.ForgetOutputs();
      SCOPED_TRACE(testing::Message() << Name(isa) << " " << c);
      ForEachCase(
          [&, got = OutputsOf(problem, ContextOf(isa))](int64_t b, int64_t n) {
            for (int64_t row = 0; row < p.lengths.sq[b]; ++row) {
              const int64_t key = key_of(row);
              if (key < 0) continue;
              const double* v = &p.v[p.KeyRow(b, n / (p.heads / p.heads_kv), key, p.dv)];
              const double* out = &got.out[p.QueryRow(b, n, row, p.dv)];
              for (int64_t x = 0; x < p.dv; ++x) ASSERT_EQ(out[x], v[x]) << "row " << row;
            }
          },
          Axis{"batch", FromTo(0, p.batch() - 1)}, Axis{"head", FromTo(0, p.heads - 1)});
    }
  }
  static void ExpectItsValue(const ForwardCase& c, const std::function<int64_t(int64_t)>& key_of) {
    ExpectItsValue(c, MakeReferenceProblem(c), key_of);
  }
};

constexpr float kScales[] = {0.2041F, -1.7F, 3e3F, 1e6F};

TEST_P(ForwardOneKey, OfTheSequence) {
  const auto check = [&](Layout layout, int64_t sq, float scale) {
    ForwardCase c = Usual(sq, 1);
    c.layout = layout;
    c.scale = scale;
    ExpectItsValue(c, [](int64_t) { return 0; });
  };
  ForEachCase(check, Axis{"layout", {Layout::kBNSD, Layout::kTND}}, Axis{"sq", {1, 3, 70}}, Axis{"scale", kScales});
}

TEST_P(ForwardOneKey, OfTheFirstCausalRow) {
  for (const float scale : kScales) {
    ForwardCase c = Usual(70, 70);
    c.mask.mode = 3;
    c.scale = scale;
    ExpectItsValue(c, [](int64_t row) { return row == 0 ? 0 : -1; });
  }
}

// If there are few rows, the keys are cut into parts, and kernels for few rows run.
TEST_P(ForwardOneKey, OfABandOfOne) {
  for (const int64_t sq : {1, 4, 7, 300}) {
    for (const float softcap : {0.0F, 5.0F}) {
      ForwardCase c = Usual(sq, sq == 300 ? 300 : 1500);
      c.mask = {.mode = 4, .pre = 0, .next = 0};
      c.softcap = softcap;
      ExpectItsValue(c, [&](int64_t row) { return row + c.lengths.sk[0] - sq; });
    }
  }
}

TEST_P(ForwardOneKey, ThatTheDenseMaskLeaves) {
  for (const int64_t sq : {1, 5, 40}) {
    ForwardCase c = Usual(sq, 1500);
    c.dense_mask = MaskForm::kPlane;
    reference::Problem p = MakeReferenceProblem(c);
    for (int64_t row = 0; row < sq; ++row) {
      for (int64_t key = 0; key < 1500; ++key) p.dense_mask.values[row * 1500 + key] = key == 700 + row ? 0 : 1;
    }
    ExpectItsValue(c, p, [](int64_t row) { return 700 + row; });
  }
}

// The other keys' probabilities are below the smallest f32 number.
TEST_P(ForwardOneKey, ThatIsFarAboveTheOthers) {
  const auto check = [&](int64_t sq, float scale) {
    ForwardCase c = Usual(sq, 1500);
    c.scale = scale;
    reference::Problem p = MakeReferenceProblem(c);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t n = 0; n < 4; ++n) {
        for (int64_t row = 0; row < sq; ++row) {
          // The key's score is 16 * 16, and the other scores are below 16 * 8.
          std::fill_n(&p.q[p.QueryRow(b, n, row, c.d)], c.d, 0.0);
          p.q[p.QueryRow(b, n, row, c.d) + 3] = 16;
        }
        if (n % 2 != 0) continue;
        p.k[p.KeyRow(b, n / 2, 1100, c.d) + 3] = 15.875;
      }
    }
    ExpectItsValue(c, p, [](int64_t) { return 1100; });
  };
  ForEachCase(check, Axis{"sq", {1, 5, 40}}, Axis{"scale", {3.0F, 40.0F, 700.0F}});
}

INSTANTIATE_TEST_SUITE_P(DType, ForwardOneKey, ::testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace fa::test
