// Implements aclnnSparseFlashAttention and its V2 with fa::PlanSparseFlashAttention.
#include "fa/sparse_flash_attention.h"

#include <memory>
#include <string>

#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_sparse_flash_attention.h"
#include "aclnnop/aclnn_sparse_flash_attention_v2.h"

namespace fa::aclnn {
namespace {

using Args = SparseAttentionArgs;

// The only mode that exists: query and key have a part without and a part with rope. The values are the keys without
// rope.
constexpr int64_t kAttentionMode = 2;

Status ReadAttributes(const SparseLayouts& layouts, int64_t sparse_mode, int64_t attention_mode,
                      SparseAttentionOptions& options) {
  options.layout = layouts.layout;
  const auto mask = SparseMaskOf(sparse_mode);
  if (!mask.ok()) return mask.status();
  options.mask = *mask;
  if (attention_mode == kAttentionMode) return Status::Ok();
  return Status::InvalidArgument("attentionMode=" + std::to_string(attention_mode) + ", want 2");
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnSparseFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTable, const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKv,
    const aclTensor* queryRope, const aclTensor* keyRope, double scaleValue, int64_t sparseBlockSize, char* layoutQuery,
    char* layoutKv, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, int64_t attentionMode,
    bool returnSoftmaxLse, const aclTensor* attentionOutOut, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnSparseFlashAttentionV2GetWorkspaceSize(
      query, key, value, sparseIndices, blockTable, actualSeqLengthsQuery, actualSeqLengthsKv, queryRope, keyRope,
      /*sinks=*/nullptr, scaleValue, sparseBlockSize, layoutQuery, layoutKv, sparseMode, preTokens, nextTokens,
      attentionMode, returnSoftmaxLse, attentionOutOut, softmaxMaxOut, softmaxSumOut, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnSparseFlashAttention)

aclnnStatus aclnnSparseFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* blockTable, const aclTensor* actualSeqLengthsQuery, const aclTensor* actualSeqLengthsKv,
    const aclTensor* queryRope, const aclTensor* keyRope, const aclTensor* sinks, double scaleValue,
    int64_t sparseBlockSize, char* layoutQuery, char* layoutKv, int64_t sparseMode, int64_t /*preTokens*/,
    int64_t /*nextTokens*/, int64_t attentionMode, bool returnSoftmaxLse, const aclTensor* attentionOutOut,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error = CheckNotNull({{"query", query},
                                      {"key", key},
                                      {"sparseIndices", sparseIndices},
                                      {"layoutQuery", layoutQuery},
                                      {"layoutKv", layoutKv},
                                      {"attentionOut", attentionOutOut},
                                      {"workspaceSize", workspaceSize},
                                      {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    if (returnSoftmaxLse) error = CheckNotNull({{"softmaxMax", softmaxMaxOut}, {"softmaxSum", softmaxSumOut}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQuery", layoutQuery, "layoutKv", layoutKv);
    if (!layouts.ok()) return Report(layouts.status());
    auto operation = std::make_shared<SparseOperation<Args, fa::SparseAttentionOptions>>(fa::PlanSparseFlashAttention,
                                                                                         Names::kSparseForward);
    fa::Status status = ReadAttributes(*layouts, sparseMode, attentionMode, operation->options);
    if (!status.ok()) return Report(status);
    operation->options.scale = static_cast<float>(scaleValue);
    operation->options.block_size = sparseBlockSize;
    operation->Input("query", query, &Args::q);
    operation->Input("key", key, &Args::k);
    operation->Input("value", value, &Args::v);
    operation->Input("sparseIndices", sparseIndices, &Args::sparse_indices);
    operation->Pages("blockTable", blockTable, layouts->paged);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQuery);
    operation->LengthsKv("actualSeqLengthsKv", actualSeqLengthsKv);
    operation->Input("queryRope", queryRope, &Args::q_rope);
    operation->Input("keyRope", keyRope, &Args::k_rope);
    operation->Input("sinks", sinks, &Args::sink);
    operation->Output("attentionOut", attentionOutOut, &Args::out);
    operation->OutputIf(returnSoftmaxLse, "softmaxMax", softmaxMaxOut, &Args::softmax_max);
    operation->OutputIf(returnSoftmaxLse, "softmaxSum", softmaxSumOut, &Args::softmax_sum);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashAttentionV2)
