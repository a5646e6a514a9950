// Makes random calls of the lightning indexer (forward, backward, statistics) and of its losses.

#include <algorithm>

#include "fuzz/calls/families.h"
#include "ops/indexer/indexer_expectation.h"
#include "ops/indexer/lse_case.h"
#include "ops/indexer/random_indexer_case.h"

namespace fa::test {
namespace {

class IndexerForwardCall : public PlannedCall<IndexerCall, IndexerCase> {
 public:
  explicit IndexerForwardCall(const IndexerCase& c) : PlannedCall(c, PlanLightningIndexer, LightningIndexer) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    return IsSelection(problem_, problem_.Outputs());
  }
};

class IndexerBackwardCall : public PlannedCall<IndexerGradCall, IndexerCase> {
 public:
  explicit IndexerBackwardCall(const IndexerCase& c) : PlannedCall(c, PlanLightningIndexerGrad, LightningIndexerGrad) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = ExpectBackward(problem_);
    return MatchesExpected(problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

class LseFuzzCall : public PlannedCall<LseCall, IndexerCase> {
 public:
  explicit LseFuzzCall(const IndexerCase& c)
      : PlannedCall(c, PlanDenseLightningIndexerSoftmaxLse, DenseLightningIndexerSoftmaxLse) {}
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = ExpectStatistics(problem_);
    return MatchesExpected(problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

/// The sparse loss of the indexer. Its arguments have another type than those of the dense loss.
struct SparseLoss : LossCall {
  using LossCall::LossCall;
  [[nodiscard]] SparseIndexerLossArgs args() const { return sparse_args(); }
};
struct DenseLoss : LossCall {
  using LossCall::LossCall;
  [[nodiscard]] DenseIndexerLossArgs args() const { return dense_args(); }
  [[nodiscard]] DenseIndexerLossOptions options() const { return dense_options(); }
};

/// Returns whether p_head_mean replaces the tensor of this field. The operator then ignores the tensor and its
/// mistakes.
bool IsReplaced(const TensorField& field) {
  const std::string& name = field.name();
  return name == "q" || name == "k" || name == "q_rope" || name == "k_rope" || name == "softmax_max" ||
         name == "softmax_sum";
}

template <typename Problem>
class LossFuzzCall : public PlannedCall<Problem, LossCase> {
 public:
  using PlannedCall<Problem, LossCase>::PlannedCall;
  [[nodiscard]] std::vector<TensorField> Tensors() override {
    std::vector<TensorField> fields = PlannedCall<Problem, LossCase>::Tensors();
    if (this->case_.head_mean) std::erase_if(fields, IsReplaced);
    return fields;
  }
  [[nodiscard]] ::testing::AssertionResult MatchesReference() override {
    if (expected_.empty()) expected_ = ExpectLoss(this->problem_);
    return MatchesExpected(this->problem_.Outputs(), expected_);
  }

 private:
  std::vector<ExpectedOutput> expected_;
};

}  // namespace

std::unique_ptr<FuzzCall> RandomIndexerCall(uint64_t seed) {
  return std::make_unique<IndexerForwardCall>(RandomIndexerCase(seed, true));
}

std::unique_ptr<FuzzCall> RandomIndexerBackwardCall(uint64_t seed) {
  return std::make_unique<IndexerBackwardCall>(RandomIndexerCase(seed, false));
}

std::unique_ptr<FuzzCall> RandomDenseIndexerLseCall(uint64_t seed) {
  return std::make_unique<LseFuzzCall>(RandomIndexerCase(seed, false));
}

std::unique_ptr<FuzzCall> RandomIndexerLossCall(uint64_t seed) {
  return std::make_unique<LossFuzzCall<SparseLoss>>(RandomLossCase(seed, false), PlanSparseLightningIndexerGradKLLoss,
                                                    SparseLightningIndexerGradKLLoss);
}

std::unique_ptr<FuzzCall> RandomDenseIndexerLossCall(uint64_t seed) {
  return std::make_unique<LossFuzzCall<DenseLoss>>(RandomLossCase(seed, true), PlanDenseLightningIndexerGradKLLoss,
                                                   DenseLightningIndexerGradKLLoss);
}

}  // namespace fa::test
