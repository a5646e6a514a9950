// Makes random calls of dense attention, forward and backward.
#include "fuzz/calls/families.h"
#include "support/cases/random_backward_case.h"
#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/compare/compare_gradients.h"

namespace fa::test {
namespace {

class DenseForwardCall : public PlannedCall<ForwardProblem, ForwardCase> {
 public:
  explicit DenseForwardCall(const ForwardCase& c) : PlannedCall(c, PlanFlashAttention, FlashAttention) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!want_) want_ = reference::Forward(problem_.values());
    return test::MatchesReference(problem_, *want_);
  }

 private:
  std::optional<reference::ForwardResult> want_;
};

class DenseBackwardCall : public PlannedCall<BackwardProblem, BackwardCase> {
 public:
  explicit DenseBackwardCall(const BackwardCase& c) : PlannedCall(c, PlanFlashAttentionGrad, FlashAttentionGrad) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (!expected_) expected_ = ExpectGradients(case_, problem_.values());
    return test::MatchesReference(problem_.Outputs(), *expected_);
  }

 private:
  std::optional<ExpectedGradients> expected_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomForwardCall(uint64_t seed) {
  return std::make_unique<DenseForwardCall>(RandomForwardCase(seed));
}

std::unique_ptr<FuzzCall> RandomBackwardCall(uint64_t seed) {
  return std::make_unique<DenseBackwardCall>(RandomBackwardCase(seed));
}

}  // namespace fa::test
