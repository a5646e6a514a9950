#ifndef FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
#define FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_

#include <vector>

#include "ops/indexer/indexer_case.h"

namespace fa::test {

/// Returns the error of a sum of n products in f32, relative to the sum of their magnitudes
/// (support/compare/tolerance.h).
[[nodiscard]] double ErrorOfSum(int64_t n);

/// Returns how far a score of f32 products and sums may be from the exact score. Let a_g be the magnitude of the
/// product of head g. The product is off by e(D) a_g, ReLU does not increase that, and the sum over the heads adds e(N)
/// of its magnitude. bf16 dot products take subnormal terms as 0, so each term may also be off by FLT_MIN.
[[nodiscard]] double ScoreTolerance(const reference::IndexerProblem& problem, int64_t token, int64_t key, DType dtype);

/// Returns whether `got` is a selection of the right scores:
/// - it has as many keys as there are, each below the limit and only once;
/// - its values are within ScoreTolerance (and their own rounding), in the order of the operator;
/// - no key that was left out has a score above the smallest selected score by more than both tolerances. For small
///   integers `got` must equal the reference.
[[nodiscard]] ::testing::AssertionResult IsSelection(const IndexerCall& call, const TokenOutputs& got);

/// Adds up how far gradients may be off when the scores' gradients d_score are off by d_score_error. dq and dweights
/// are sums over the selected keys of a token, and dk is a sum over tokens. A product may be off by ScoreTolerance's
/// e(D) a_g. So a product closer to 0 than e(D) a_g may count or not. With 16-bit types w d_score may be rounded before
/// it meets q and k.
class IndexerGradientTolerance {
 public:
  IndexerGradientTolerance(const reference::IndexerProblem& problem, DType dtype);
  /// Adds a pair. Token and key are packed rows.
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

/// Returns the expected gradients. Gradients of small integers are exact except for their own rounding, so they have no
/// tolerance.
[[nodiscard]] std::vector<ExpectedOutput> ExpectBackward(const IndexerGradCall& call);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
