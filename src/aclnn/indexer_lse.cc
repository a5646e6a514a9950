// Implements aclnnDenseLightningIndexerSoftmaxLse with fa::PlanDenseLightningIndexerSoftmaxLse.
#include "fa/indexer_lse.h"

#include <memory>

#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_dense_lightning_indexer_softmax_lse.h"

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnDenseLightningIndexerSoftmaxLseGetWorkspaceSize(
    const aclTensor* queryIndex, const aclTensor* keyIndex, const aclTensor* weight,
    const aclIntArray* actualSeqLengthsQueryOptional, const aclIntArray* actualSeqLengthsKeyOptional,
    char* layoutOptional, int64_t sparseMode, int64_t /*preTokens*/, int64_t /*nextTokens*/,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::DenseIndexerLseArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"queryIndex", queryIndex},
                                            {"keyIndex", keyIndex},
                                            {"weight", weight},
                                            {"softmaxMax", softmaxMaxOut},
                                            {"softmaxSum", softmaxSumOut},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layout = SparseLayoutOf("layout", layoutOptional);
    if (!layout.ok()) return Report(layout.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    auto operation = std::make_shared<SparseOperation<Args, fa::DenseIndexerLseOptions>>(
        fa::PlanDenseLightningIndexerSoftmaxLse, Names::kDenseIndexerLse);
    operation->options = {.layout = *layout, .mask = *mask};
    operation->Input("queryIndex", queryIndex, &Args::q_index);
    operation->Input("keyIndex", keyIndex, &Args::k_index);
    operation->Input("weight", weight, &Args::weights);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQueryOptional);
    operation->LengthsKv("actualSeqLengthsKey", actualSeqLengthsKeyOptional);
    operation->Output("softmaxMax", softmaxMaxOut, &Args::softmax_max_index);
    operation->Output("softmaxSum", softmaxSumOut, &Args::softmax_sum_index);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnDenseLightningIndexerSoftmaxLse)
