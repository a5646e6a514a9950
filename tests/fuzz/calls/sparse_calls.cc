// Makes random calls of sparse attention, forward and backward.
#include "fuzz/calls/families.h"
#include "ops/sparse/random_sparse_case.h"
#include "ops/sparse/sparse_expectation.h"

namespace fa::test {
namespace {

class SparseForwardCall : public PlannedCall<SparseCall, SparseCase> {
 public:
  explicit SparseForwardCall(const SparseCase& c) : PlannedCall(c, PlanSparseFlashAttention, SparseFlashAttention) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = ExpectForward(problem_);
    return MatchesExpected(problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

class SparseBackwardCall : public PlannedCall<SparseGradCall, SparseCase> {
 public:
  explicit SparseBackwardCall(const SparseCase& c)
      : PlannedCall(c, PlanSparseFlashAttentionGrad, SparseFlashAttentionGrad) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = ExpectBackward(problem_);
    return MatchesExpected(problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomSparseForwardCall(uint64_t seed) {
  return std::make_unique<SparseForwardCall>(RandomSparseCase(seed));
}

std::unique_ptr<FuzzCall> RandomSparseBackwardCall(uint64_t seed) {
  SparseCase c = RandomSparseCase(seed);
  c.rows.reset();
  c.tokens.page_rows = 0;
  return std::make_unique<SparseBackwardCall>(c);
}

}  // namespace fa::test
