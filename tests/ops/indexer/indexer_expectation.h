#ifndef FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
#define FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_

#include <vector>

#include "ops/indexer/indexer_case.h"

namespace fa::test {

/// Returns the error of a sum of n products in f32, relative to the sum of the products' magnitudes
/// (support/compare/tolerance.h).
[[nodiscard]] double ErrorOfSum(int64_t n);

/// Returns how far an f32 score may be from the exact score. Write e for ErrorOfSum, and let a_g be the sum of |q k|
/// over the D elements of head g. The product of head g is off by e(D) a_g, and ReLU does not increase that. The sum
/// over N heads adds e(N) times the sum of its terms' magnitudes. bf16 dot products take subnormal terms as 0, which
/// adds FLT_MIN per term.
[[nodiscard]] double ScoreTolerance(const reference::IndexerProblem& problem, int64_t token, int64_t key, DType dtype);

/// Returns whether `got` is a selection of the right scores:
/// - it has min(keys below the limit, slots) different keys, each below the limit;
/// - its values are within ScoreTolerance and their own rounding, and do not increase;
/// - no key that is left out has a score above the smallest selected score by more than both tolerances. If all values
///   are small integers, `got` must equal the reference.
[[nodiscard]] ::testing::AssertionResult IsSelection(const IndexerCall& call, const TokenOutputs& got);

/// Adds up how far gradients may be off if the gradients d_score of the scores are off by d_score_error. dq and
/// dweights are sums over the selected keys of a token, and dk is a sum over tokens. ScoreTolerance defines e(D) a_g,
/// the error of a head's product. ReLU may keep or drop a product that is closer to 0 than this error. With 16-bit
/// types, w d_score may be rounded before it is multiplied by q and k.
class IndexerGradientTolerance {
 public:
  IndexerGradientTolerance(const reference::IndexerProblem& problem, DType dtype);
  /// Adds the pair of a token and a key, both given as packed rows.
  void Add(int64_t token, int64_t key, double d_score, double d_score_error);
  /// Returns the expected gradients with their tolerances, including the gradients' own rounding.
  [[nodiscard]] std::vector<ExpectedOutput> Expect(const reference::IndexerGradients& want, DType weights_dtype) const;

 private:
  struct Sum {
    std::vector<double> error, squares, magnitude, terms;
    explicit Sum(size_t size) : error(size), squares(size), magnitude(size), terms(size) {}
  };
  void AddTerm(size_t at, double magnitude, double error, double rounding, Sum* sum) const;
  [[nodiscard]] ExpectedOutput ExpectSum(const char* name, const std::vector<double>& want, const Sum& sum,
                                         DType dtype) const;

  const reference::IndexerProblem& problem_;
  DType dtype_;
  Sum dq_, dk_, dweights_;
};

/// Returns the expected gradients. For small integers, their only error is their own rounding.
[[nodiscard]] std::vector<ExpectedOutput> ExpectBackward(const IndexerGradCall& call);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
