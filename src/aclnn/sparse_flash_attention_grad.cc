// Implements aclnnSparseFlashAttentionGrad and its V2 with fa::PlanSparseFlashAttentionGrad.
#include "fa/sparse_flash_attention_grad.h"

#include <memory>

#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad_v2.h"

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnSparseFlashAttentionGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* dOut, const aclTensor* out, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* actualSeqLengthsQueryOptional, const aclTensor* actualSeqLengthsKvOptional,
    const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional, double scaleValue, int64_t sparseBlockSize,
    char* layoutOptional, int64_t sparseMode, int64_t preTokens, int64_t nextTokens, bool deterministic,
    const aclTensor* dQueryOut, const aclTensor* dKeyOut, const aclTensor* dValueOut,
    const aclTensor* dQueryRopeOutOptional, const aclTensor* dKeyRopeOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return aclnnSparseFlashAttentionGradV2GetWorkspaceSize(
      query, key, value, sparseIndices, dOut, out, softmaxMax, softmaxSum, /*sinksOptional=*/nullptr,
      actualSeqLengthsQueryOptional, actualSeqLengthsKvOptional, queryRopeOptional, keyRopeOptional, scaleValue,
      sparseBlockSize, layoutOptional, sparseMode, preTokens, nextTokens, deterministic, dQueryOut, dKeyOut, dValueOut,
      dQueryRopeOutOptional, dKeyRopeOutOptional, /*dSinksOutOptional=*/nullptr, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnSparseFlashAttentionGrad)

aclnnStatus aclnnSparseFlashAttentionGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* dOut, const aclTensor* out, const aclTensor* softmaxMax, const aclTensor* softmaxSum,
    const aclTensor* sinksOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, const aclTensor* queryRopeOptional, const aclTensor* keyRopeOptional,
    double scaleValue, int64_t sparseBlockSize, char* layoutOptional, int64_t sparseMode, int64_t /*preTokens*/,
    int64_t /*nextTokens*/, bool /*deterministic*/, const aclTensor* dQueryOut, const aclTensor* dKeyOut,
    const aclTensor* dValueOut, const aclTensor* dQueryRopeOutOptional, const aclTensor* dKeyRopeOutOptional,
    const aclTensor* dSinksOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::SparseAttentionGradArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error = CheckNotNull({{"query", query},
                                      {"key", key},
                                      {"sparseIndices", sparseIndices},
                                      {"dOut", dOut},
                                      {"out", out},
                                      {"softmaxMax", softmaxMax},
                                      {"softmaxSum", softmaxSum},
                                      {"dQuery", dQueryOut},
                                      {"dKey", dKeyOut},
                                      {"workspaceSize", workspaceSize},
                                      {"executor", executor}});
    // If the optional tensor `value` is given, dValue must be given too.
    if (error == ACLNN_SUCCESS && value != nullptr) error = CheckNotNull({{"dValue", dValueOut}});
    if (error == ACLNN_SUCCESS && queryRopeOptional != nullptr) {
      error = CheckNotNull({{"dQueryRope", dQueryRopeOutOptional}, {"dKeyRope", dKeyRopeOutOptional}});
    }
    if (error != ACLNN_SUCCESS) return error;
    if (sinksOptional != nullptr && dSinksOutOptional == nullptr) {
      return Report(fa::Status::InvalidArgument("dSinks: missing, want it with sinks"));
    }
    const auto layout = SparseLayoutOf("layout", layoutOptional);
    if (!layout.ok()) return Report(layout.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    auto operation = std::make_shared<SparseOperation<Args, fa::SparseAttentionOptions>>(
        fa::PlanSparseFlashAttentionGrad, Names::kSparseBackward);
    operation->options = {
        .layout = *layout, .scale = static_cast<float>(scaleValue), .block_size = sparseBlockSize, .mask = *mask};
    operation->Input("query", query, &Args::q);
    operation->Input("key", key, &Args::k);
    operation->Input("value", value, &Args::v);
    operation->Input("sparseIndices", sparseIndices, &Args::sparse_indices);
    operation->Input("dOut", dOut, &Args::d_out);
    operation->Input("out", out, &Args::out);
    operation->Input("softmaxMax", softmaxMax, &Args::softmax_max);
    operation->Input("softmaxSum", softmaxSum, &Args::softmax_sum);
    operation->Input("sinks", sinksOptional, &Args::sink);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQueryOptional);
    operation->LengthsKv("actualSeqLengthsKv", actualSeqLengthsKvOptional);
    operation->Input("queryRope", queryRopeOptional, &Args::q_rope);
    operation->Input("keyRope", keyRopeOptional, &Args::k_rope);
    operation->Output("dQuery", dQueryOut, &Args::dq);
    operation->Output("dKey", dKeyOut, &Args::dk);
    operation->Output("dValue", dValueOut, &Args::dv);
    operation->Output("dQueryRope", dQueryRopeOutOptional, &Args::dq_rope);
    operation->Output("dKeyRope", dKeyRopeOutOptional, &Args::dk_rope);
    operation->Output("dSinks", dSinksOutOptional, &Args::dsink);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashAttentionGradV2)
