#include "ops/indexer/lse_case.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "ops/indexer/indexer_expectation.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr double kUnit = 0x1p-24;

/// How far the maximum and the sum of one row may be off.
struct RowError {
  double max = 0, sum = 0;
};

RowError ErrorOfRow(const LseCall& call, int64_t b, int64_t t, double max, double sum) {
  const reference::IndexerProblem& p = call.values();
  const reference::Selection& s = p.selection;
  const int64_t token = s.FirstToken(b) + t, limit = s.Limit(b, t);
  const bool exact = call.indexer_case().values == IndexerValues::kSmallIntegers;
  RowError error;
  for (int64_t key = s.FirstKey(b); !exact && key < s.FirstKey(b) + limit; ++key) {
    if (std::isfinite(p.Score(token, key))) {
      error.max = std::max(error.max, ScoreTolerance(p, token, key, call.indexer_case().tokens.dtype));
    }
  }
  for (int64_t key = s.FirstKey(b); key < s.FirstKey(b) + limit; ++key) {
    const double below = p.Score(token, key) - max;
    const double relative = std::expm1(2 * error.max) + 4 * kUnit * (std::fabs(below) + 2 * error.max + 1);
    error.sum += (std::isfinite(below) ? std::exp(below) * relative : 0) + static_cast<double>(FLT_MIN);
  }
  error.sum += 2 * kUnit * sum;
  error.max += error.max > 0 ? kUnit * std::fabs(max) : 0;
  return error;
}

}  // namespace

LseCall::LseCall(const IndexerCase& c, reference::IndexerProblem values)
    : case_(c), values_(std::move(values)), tensors_(c.tokens) {
  q_ = tensors_.MakeQuerySide(c.tokens.dtype, c.heads, c.d);
  tensors_.FillQueries(values_.q, q_);
  k_ = tensors_.MakeKeySide(c.tokens.dtype, 1, c.d);
  tensors_.FillKeys(values_.k, k_);
  weights_ = tensors_.MakeFlatQuerySide(c.weights_dtype(), c.heads);
  tensors_.FillQueries(values_.weights, weights_);
  max_ = tensors_.MakeRowStatistic();
  sum_ = tensors_.MakeRowStatistic();
}

DenseIndexerLseArgs LseCall::args() const {
  return {.q_index = q_.tensor.view(),
          .k_index = k_.tensor.view(),
          .weights = weights_.tensor.view(),
          .lengths_q = tensors_.lengths_q(),
          .lengths_kv = tensors_.lengths_kv(),
          .softmax_max_index = max_.tensor.mutable_view(),
          .softmax_sum_index = sum_.tensor.mutable_view()};
}

TokenOutputs LseCall::Outputs() const {
  return {{"softmax_max_index", tensors_.Queries(max_)}, {"softmax_sum_index", tensors_.Queries(sum_)}};
}

Snapshot LseCall::TakeSnapshot(bool outputs_may_change) const {
  Snapshot snapshot;
  for (const RowTensor* input : {&q_, &k_, &weights_}) snapshot.Add(input->tensor);
  for (const RowTensor* output : {&max_, &sum_}) {
    snapshot.Add(output->tensor);
    if (outputs_may_change) snapshot.Allow(output->tensor);
  }
  return snapshot;
}

std::vector<ExpectedOutput> ExpectStatistics(const LseCall& call) {
  const reference::IndexerStatistics want = reference::StatisticsOfScores(call.values());
  const reference::Selection& s = call.values().selection;
  ExpectedOutput max{"softmax_max_index", want.max, {}}, sum{"softmax_sum_index", want.sum, {}};
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t t = 0; t < s.lengths.sq[b]; ++t) {
      const int64_t token = s.FirstToken(b) + t;
      const RowError error = ErrorOfRow(call, b, t, want.max[token], want.sum[token]);
      max.allowed.push_back(error.max);
      sum.allowed.push_back(error.sum);
    }
  }
  return {max, sum};
}

AssertionResult StatisticsAreTheReference(const LseCall& call, int threads) {
  const std::vector<ExpectedOutput> expected = ExpectStatistics(call);
  for (const Isa isa : IsaLevels()) {
    const Snapshot before = call.TakeSnapshot();
    before.Forget();
    const Status status = call.Run(ContextOf(isa, threads));
    AssertionResult matches =
        status.ok() ? MatchesExpected(call.Outputs(), expected) : AssertionFailure() << status.message();
    if (matches && before.FirstChange() >= 0) {
      matches = AssertionFailure() << "byte " << before.FirstChange() << " of a buffer was overwritten";
    }
    if (!matches) return matches << "\n " << IsaName(isa) << " " << call.indexer_case();
  }
  return AssertionSuccess();
}

AssertionResult StatisticsAreTheReference(const IndexerCase& c, int threads) {
  return StatisticsAreTheReference(LseCall(c), threads);
}

TokenOutputs StatisticsOf(const IndexerCase& c, Context* context) {
  const LseCall call(c);
  const Status status = call.Run(context);
  EXPECT_TRUE(status.ok()) << status.message() << "\n " << c;
  return call.Outputs();
}

}  // namespace fa::test
