#ifndef FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
#define FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_

#include <vector>

#include "ops/indexer/indexer_case.h"

namespace fa::test {

/// Error of a sum of n products in f32, relative to the sum of their magnitudes (support/compare/tolerance.h).
[[nodiscard]] double ErrorOfSum(int64_t n);

/// How far a score of f32 products and sums may be from the exact one. With a_g the magnitude of the product of head g:
/// the product is off by e(D) a_g, ReLU makes that no larger, and the sum over the heads adds e(N) of its magnitude.
/// bf16: dot products take subnormal terms as 0, so each of them may also be off by FLT_MIN.
[[nodiscard]] double ScoreTolerance(const reference::IndexerProblem& problem, int64_t token, int64_t key, DType dtype);

/// Whether `got` is a selection of the right scores: as many keys as there are, each below the limit and only once;
/// values within ScoreTolerance (and their own rounding) and in the order of the operator; and no left-out key has a
/// score that exceeds the smallest selected score by more than both may be off. For small integers it must equal the
/// reference.
[[nodiscard]] ::testing::AssertionResult IsSelection(const IndexerCall& call, const TokenOutputs& got);

/// How far the gradients may be off that scores of gradient d_scores, each itself off by d_score_errors, cause: row
/// sums over the selected keys for dq and dweights, over the tokens for dk. A product may be off by ScoreTolerance's
/// e(D) a_g, so one that is closer to 0 may count or not. 16-bit types: w d_score may be rounded before it meets q and
/// k.
class IndexerGradientTolerance {
 public:
  IndexerGradientTolerance(const reference::IndexerProblem& problem, DType dtype);
  /// Token and key are packed rows.
  void Add(int64_t token, int64_t key, double d_score, double d_score_error);
  /// With the gradients' own rounding.
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

/// Small integers are exact but for the gradients' own rounding, so there is no tolerance.
[[nodiscard]] std::vector<ExpectedOutput> ExpectBackward(const IndexerGradCall& call);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_INDEXER_EXPECTATION_H_
