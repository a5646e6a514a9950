// Implements aclnnLightningIndexer with fa::PlanLightningIndexer, and aclnnLightningIndexerGrad with
// fa::PlanLightningIndexerGrad.
#include "fa/lightning_indexer.h"

#include <memory>

#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_lightning_indexer.h"
#include "aclnnop/aclnn_lightning_indexer_grad.h"
#include "fa/lightning_indexer_grad.h"

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnLightningIndexerGetWorkspaceSize(const aclTensor* query, const aclTensor* key,
                                                  const aclTensor* weights,
                                                  const aclTensor* actualSeqLengthsQueryOptional,
                                                  const aclTensor* actualSeqLengthsKeyOptional,
                                                  const aclTensor* blockTableOptional, char* layoutQueryOptional,
                                                  char* layoutKeyOptional, int64_t sparseCount, int64_t sparseMode,
                                                  int64_t /*preTokens*/, int64_t /*nextTokens*/, bool returnValues,
                                                  const aclTensor* sparseIndicesOut, const aclTensor* sparseValuesOut,
                                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::LightningIndexerArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error = CheckNotNull({{"query", query},
                                      {"key", key},
                                      {"weights", weights},
                                      {"sparseIndices", sparseIndicesOut},
                                      {"workspaceSize", workspaceSize},
                                      {"executor", executor}});
    if (error == ACLNN_SUCCESS && returnValues) error = CheckNotNull({{"sparseValues", sparseValuesOut}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQuery", layoutQueryOptional, "layoutKey", layoutKeyOptional);
    if (!layouts.ok()) return Report(layouts.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    const fa::Status count = CheckCountOfEntries("sparseCount", sparseCount, "sparseIndices", sparseIndicesOut);
    if (!count.ok()) return Report(count);
    auto operation =
        std::make_shared<SparseOperation<Args, fa::LightningIndexerOptions>>(fa::PlanLightningIndexer, Names::kIndexer);
    operation->options = {.layout = layouts->layout, .mask = *mask};
    operation->Input("query", query, &Args::q);
    operation->Input("key", key, &Args::k);
    operation->Input("weights", weights, &Args::weights);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQueryOptional);
    operation->LengthsKv("actualSeqLengthsKey", actualSeqLengthsKeyOptional);
    operation->Pages("blockTable", blockTableOptional, layouts->paged);
    operation->Output("sparseIndices", sparseIndicesOut, &Args::sparse_indices);
    operation->OutputIf(returnValues, "sparseValues", sparseValuesOut, &Args::sparse_values);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnLightningIndexer)

aclnnStatus aclnnLightningIndexerGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* dy, const aclTensor* sparseIndices,
    const aclTensor* weights, const aclTensor* actualSeqQLenOptional, const aclTensor* actualSeqKvLenOptional,
    int64_t /*headNum*/, char* inputLayout, int64_t sparseMode, int64_t /*preTokens*/, int64_t /*nextTokens*/,
    bool /*deterministic*/, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dweightsOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::LightningIndexerGradArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"dy", dy},
                                            {"sparseIndices", sparseIndices},
                                            {"weights", weights},
                                            {"inputLayout", inputLayout},
                                            {"dq", dqOut},
                                            {"dk", dkOut},
                                            {"dweights", dweightsOut},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layout = SparseLayoutOf("inputLayout", inputLayout);
    if (!layout.ok()) return Report(layout.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    auto operation = std::make_shared<SparseOperation<Args, fa::LightningIndexerGradOptions>>(
        fa::PlanLightningIndexerGrad, Names::kIndexerBackward);
    operation->options = {.layout = *layout, .mask = *mask};
    operation->Input("query", query, &Args::q);
    operation->Input("key", key, &Args::k);
    operation->Input("dy", dy, &Args::d_values);
    operation->Input("sparseIndices", sparseIndices, &Args::sparse_indices);
    operation->Input("weights", weights, &Args::weights);
    operation->LengthsQ("actualSeqQLen", actualSeqQLenOptional);
    operation->LengthsKv("actualSeqKvLen", actualSeqKvLenOptional);
    operation->Output("dq", dqOut, &Args::dq);
    operation->Output("dk", dkOut, &Args::dk);
    operation->Output("dweights", dweightsOut, &Args::dweights);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnLightningIndexerGrad)
