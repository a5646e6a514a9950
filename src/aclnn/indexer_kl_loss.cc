// Implements aclnnLightningIndexerKLLoss with fa::PlanIndexerKLLoss.
#include "fa/indexer_kl_loss.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "aclnn/operations/tensor_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_lightning_indexer_kl_loss.h"

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnLightningIndexerKLLossGetWorkspaceSize(const aclTensor* targetScore, const aclTensor* indexProbs,
                                                        double eps, const char* weightType, const aclTensor* loss,
                                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::IndexerKLLossArgs;
  using LossOperation = TensorOperation<Args, fa::IndexerKLLossOptions>;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"targetScore", targetScore},
                                            {"indexProbs", indexProbs},
                                            {"weightType", weightType},
                                            {"loss", loss},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const bool of_target = std::string_view(weightType) == "logits";
    if (!of_target && std::string_view(weightType) != "probs") {
      return Report(
          fa::Status::InvalidArgument("weightType=\"" + std::string(weightType) + "\", want \"logits\" or \"probs\""));
    }
    auto operation = std::make_shared<LossOperation>(fa::PlanIndexerKLLoss, Names::kIndexerLossValue);
    operation->options = {
        .eps = eps, .weight = of_target ? fa::IndexerKLLossWeight::kTarget : fa::IndexerKLLossWeight::kNormalised};
    operation->Input("targetScore", targetScore, &Args::target, LossOperation::Form::kAnyStride);
    operation->Input("indexProbs", indexProbs, &Args::probabilities, LossOperation::Form::kAnyStride);
    operation->Output("loss", loss, &Args::loss, LossOperation::Form::kAnyStride);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnLightningIndexerKLLoss)
