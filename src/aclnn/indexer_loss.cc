// Implements aclnnSparseLightningIndexerGradKLLoss, its V2 and aclnnDenseLightningIndexerGradKLLoss with the plans of
// fa/indexer_loss.h.
#include "fa/indexer_loss.h"

#include <memory>

#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_dense_lightning_indexer_grad_kl_loss.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss_v2.h"

namespace fa::aclnn {
namespace {

/// The parameters of both losses. A member is null if the called loss has no such parameter.
struct LossTensors {
  const aclTensor *query, *key, *query_index, *key_index, *weights, *sparse_indices, *softmax_max, *softmax_sum;
  const aclTensor *softmax_max_index, *softmax_sum_index, *query_rope, *key_rope, *sinks;
  const aclIntArray *lengths_q, *lengths_kv;
  const aclTensor *dq_index, *dk_index, *dweights, *loss;
};

struct LossCall {
  double scale_value;
  const char* layout;
  int64_t sparse_mode;
};

template <typename Options>
Status ReadOptions(const LossCall& call, Options& options) {
  const auto layout = SparseLayoutOf("layout", call.layout);
  if (!layout.ok()) return layout.status();
  const auto mask = SparseMaskOf(call.sparse_mode);
  if (!mask.ok()) return mask.status();
  options.layout = *layout;
  options.mask = *mask;
  options.scale = static_cast<float>(call.scale_value);
  return Status::Ok();
}

/// Does the first phase of the loss that `Args` belongs to.
template <typename Args, typename Options>
aclnnStatus PrepareLoss(typename SparseOperation<Args, Options>::Planner planner, const LossTensors& tensors,
                        const LossCall& call, uint64_t* workspace_size, aclOpExecutor** executor) {
  constexpr bool kSparse = requires(Args args) { args.sparse_indices; };
  aclnnStatus error = CheckNotNull({{"query", tensors.query},
                                    {"key", tensors.key},
                                    {"queryIndex", tensors.query_index},
                                    {"keyIndex", tensors.key_index},
                                    {"weights", tensors.weights},
                                    {"softmaxMax", tensors.softmax_max},
                                    {"softmaxSum", tensors.softmax_sum},
                                    {"layout", call.layout},
                                    {"dQueryIndex", tensors.dq_index},
                                    {"dKeyIndex", tensors.dk_index},
                                    {"dWeights", tensors.dweights},
                                    {"loss", tensors.loss},
                                    {"workspaceSize", workspace_size},
                                    {"executor", executor}});
  if (error != ACLNN_SUCCESS) return error;
  if constexpr (kSparse) {
    error = CheckNotNull({{"sparseIndices", tensors.sparse_indices}});
  } else {
    error =
        CheckNotNull({{"softmaxMaxIndex", tensors.softmax_max_index}, {"softmaxSumIndex", tensors.softmax_sum_index}});
  }
  if (error != ACLNN_SUCCESS) return error;
  auto operation = std::make_shared<SparseOperation<Args, Options>>(planner, Names::kIndexerLoss);
  if (Status status = ReadOptions(call, operation->options); !status.ok()) return Report(status);
  operation->Input("query", tensors.query, &Args::q);
  operation->Input("key", tensors.key, &Args::k);
  operation->Input("queryIndex", tensors.query_index, &Args::q_index);
  operation->Input("keyIndex", tensors.key_index, &Args::k_index);
  operation->Input("weights", tensors.weights, &Args::weights);
  if constexpr (kSparse) operation->Input("sparseIndices", tensors.sparse_indices, &Args::sparse_indices);
  operation->Input("softmaxMax", tensors.softmax_max, &Args::softmax_max);
  operation->Input("softmaxSum", tensors.softmax_sum, &Args::softmax_sum);
  if constexpr (!kSparse) {
    operation->Input("softmaxMaxIndex", tensors.softmax_max_index, &Args::softmax_max_index);
    operation->Input("softmaxSumIndex", tensors.softmax_sum_index, &Args::softmax_sum_index);
  }
  operation->Input("queryRope", tensors.query_rope, &Args::q_rope);
  operation->Input("keyRope", tensors.key_rope, &Args::k_rope);
  if constexpr (kSparse) operation->Input("sinks", tensors.sinks, &Args::sink);
  operation->LengthsQ("actualSeqLengthsQuery", tensors.lengths_q);
  operation->LengthsKv("actualSeqLengthsKey", tensors.lengths_kv);
  operation->Output("dQueryIndex", tensors.dq_index, &Args::dq_index);
  operation->Output("dKeyIndex", tensors.dk_index, &Args::dk_index);
  operation->Output("dWeights", tensors.dweights, &Args::dweights);
  operation->Output("loss", tensors.loss, &Args::loss);
  return Release(std::move(operation), workspace_size, executor);
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnSparseLightningIndexerGradKLLossGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* sparseIndices, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery,
    const aclIntArray* actualSeqLengthsKey, double scaleValue, char* layout, int64_t sparseMode, int64_t pre_tokens,
    int64_t next_tokens, bool deterministic, const aclTensor* dQueryIndex, const aclTensor* dKeyIndex,
    const aclTensor* dWeights, const aclTensor* loss, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnSparseLightningIndexerGradKLLossV2GetWorkspaceSize(
      query, key, queryIndex, keyIndex, weights, sparseIndices, softmaxMax, softmaxSum, queryRope, keyRope,
      actualSeqLengthsQuery, actualSeqLengthsKey, /*sinks=*/nullptr, scaleValue, layout, sparseMode, pre_tokens,
      next_tokens, deterministic, dQueryIndex, dKeyIndex, dWeights, loss, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnSparseLightningIndexerGradKLLoss)

aclnnStatus aclnnSparseLightningIndexerGradKLLossV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* sparseIndices, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery,
    const aclIntArray* actualSeqLengthsKey, const aclTensor* sinks, double scaleValue, char* layout, int64_t sparseMode,
    int64_t /*pre_tokens*/, int64_t /*next_tokens*/, bool /*deterministic*/, const aclTensor* dQueryIndex,
    const aclTensor* dKeyIndex, const aclTensor* dWeights, const aclTensor* loss, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    return PrepareLoss<fa::SparseIndexerLossArgs, fa::SparseIndexerLossOptions>(
        fa::PlanSparseLightningIndexerGradKLLoss,
        {.query = query,
         .key = key,
         .query_index = queryIndex,
         .key_index = keyIndex,
         .weights = weights,
         .sparse_indices = sparseIndices,
         .softmax_max = softmaxMax,
         .softmax_sum = softmaxSum,
         .softmax_max_index = nullptr,
         .softmax_sum_index = nullptr,
         .query_rope = queryRope,
         .key_rope = keyRope,
         .sinks = sinks,
         .lengths_q = actualSeqLengthsQuery,
         .lengths_kv = actualSeqLengthsKey,
         .dq_index = dQueryIndex,
         .dk_index = dKeyIndex,
         .dweights = dWeights,
         .loss = loss},
        {.scale_value = scaleValue, .layout = layout, .sparse_mode = sparseMode}, workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseLightningIndexerGradKLLossV2)

aclnnStatus aclnnDenseLightningIndexerGradKLLossGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* queryIndex, const aclTensor* keyIndex,
    const aclTensor* weights, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* softmaxMaxIndex, const aclTensor* softmaxSumIndex, const aclTensor* queryRope,
    const aclTensor* keyRope, const aclIntArray* actualSeqLengthsQuery, const aclIntArray* actualSeqLengthsKey,
    double scaleValue, char* layout, int64_t sparseMode, int64_t /*pre_tokens*/, int64_t /*next_tokens*/,
    const aclTensor* dQueryIndex, const aclTensor* dKeyIndex, const aclTensor* dWeights, const aclTensor* loss,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    return PrepareLoss<fa::DenseIndexerLossArgs, fa::DenseIndexerLossOptions>(
        fa::PlanDenseLightningIndexerGradKLLoss,
        {.query = query,
         .key = key,
         .query_index = queryIndex,
         .key_index = keyIndex,
         .weights = weights,
         .sparse_indices = nullptr,
         .softmax_max = softmaxMax,
         .softmax_sum = softmaxSum,
         .softmax_max_index = softmaxMaxIndex,
         .softmax_sum_index = softmaxSumIndex,
         .query_rope = queryRope,
         .key_rope = keyRope,
         .sinks = nullptr,
         .lengths_q = actualSeqLengthsQuery,
         .lengths_kv = actualSeqLengthsKey,
         .dq_index = dQueryIndex,
         .dk_index = dKeyIndex,
         .dweights = dWeights,
         .loss = loss},
        {.scale_value = scaleValue, .layout = layout, .sparse_mode = sparseMode}, workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnDenseLightningIndexerGradKLLoss)
