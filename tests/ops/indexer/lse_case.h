#ifndef FA_TESTS_OPS_INDEXER_LSE_CASE_H_
#define FA_TESTS_OPS_INDEXER_LSE_CASE_H_

#include <vector>

#include "fa/indexer_lse.h"
#include "ops/indexer/indexer_case.h"

namespace fa::test {

/// The tensors of a call that computes the softmax statistics of an indexer's scores. Every byte that is no input value
/// is NaN.
class LseCall {
 public:
  explicit LseCall(const IndexerCase& c) : LseCall(c, MakeReferenceProblem(c)) {}
  LseCall(const IndexerCase& c, reference::IndexerProblem values);
  // An object cannot be copied, because the arguments point into it.
  LseCall(const LseCall&) = delete;
  LseCall& operator=(const LseCall&) = delete;

  [[nodiscard]] const IndexerCase& indexer_case() const { return case_; }
  [[nodiscard]] const reference::IndexerProblem& values() const { return values_; }
  [[nodiscard]] DenseIndexerLseArgs args() const;
  [[nodiscard]] DenseIndexerLseOptions options() const {
    return {.layout = case_.tokens.layout, .mask = case_.tokens.mask()};
  }
  [[nodiscard]] Status Run(Context* context) const {
    return DenseLightningIndexerSoftmaxLse(args(), options(), context);
  }
  [[nodiscard]] TokenOutputs Outputs() const;
  [[nodiscard]] Snapshot TakeSnapshot(bool outputs_may_change = true) const;

 private:
  IndexerCase case_;
  reference::IndexerProblem values_;
  TokenTensors tensors_;
  RowTensor q_, k_, weights_, max_, sum_;
};

/// Returns the reference's statistics and how far f32 results may be off. For one row, let e be the largest
/// ScoreTolerance of its scores (0 for small integers), and u = 2^-24. The maximum is off by e. If a score is x below
/// the maximum, its exponential is off by:
/// - the factor exp(2 e), because score and maximum may be off in opposite directions;
/// - 4 u |x|, for the difference and its factor log2(e);
/// - exp's 4 u, and FLT_MIN where it underflows.
/// Sums are computed in double and rounded once. A score that is not finite is exact.
[[nodiscard]] std::vector<ExpectedOutput> ExpectStatistics(const LseCall& call);

/// Runs the case on every level of this machine and compares it with the reference. Only the outputs may be written.
[[nodiscard]] ::testing::AssertionResult StatisticsAreTheReference(const LseCall& call, int threads = 2);
[[nodiscard]] ::testing::AssertionResult StatisticsAreTheReference(const IndexerCase& c, int threads = 2);

/// Returns the outputs of a call that must succeed, in fresh tensors.
[[nodiscard]] TokenOutputs StatisticsOf(const IndexerCase& c, Context* context);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INDEXER_LSE_CASE_H_
