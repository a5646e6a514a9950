// Implements aclnnMsaIndexScore with fa::PlanMsaIndexScore.
#include "fa/msa_index_score.h"

#include <memory>
#include <utility>

#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnnop/aclnn_msa_index_score.h"

namespace fa::aclnn {
namespace {

constexpr Rename kMsaNames[] = {{"q", "query"},
                                {"k", "key"},
                                {"block_table", "blockTable"},
                                {"lengths_q", "actualSeqQlen"},
                                {"lengths_kv", "actualSeqKlen"},
                                {"start_loc", "startLoc"},
                                {"init_blocks", "initBlocks"},
                                {"local_blocks", "localBlocks"}};

Status CheckMsaIsFloat(const aclTensor* scale, const aclTensor* mask, SparseMask sparse_mask) {
  if (scale != nullptr) return Status::InvalidArgument("scale: given, want null: int8 queries are not served");
  if (mask != nullptr && sparse_mask == SparseMask::kNone) {
    return Status::InvalidArgument("attenMask: given, want null (sparseMode 0)");
  }
  return Status::Ok();
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnMsaIndexScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* blockTableOptional, const aclTensor* scaleOptional,
    const aclTensor* attenMaskOptional, const aclTensor* actualSeqQlenOptional, const aclTensor* actualSeqKlenOptional,
    const aclTensor* startLoc, char* layoutKey, int64_t sparseMode, int64_t initBlocks, int64_t localBlocks,
    const aclTensor* score, uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::MsaIndexScoreArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"startLoc", startLoc},
                                            {"layoutKey", layoutKey},
                                            {"score", score},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("query", "TND", "layoutKey", layoutKey);
    if (!layouts.ok()) return Report(layouts.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    const fa::Status status = CheckMsaIsFloat(scaleOptional, attenMaskOptional, *mask);
    if (!status.ok()) return Report(status);
    auto operation = std::make_shared<SparseOperation<Args, fa::MsaIndexScoreOptions>>(fa::PlanMsaIndexScore,
                                                                                       Names::kIndexer, kMsaNames);
    operation->options = {.mask = *mask, .init_blocks = initBlocks, .local_blocks = localBlocks};
    operation->Input("query", query, &Args::q);
    operation->Input("key", key, &Args::k);
    operation->Pages("blockTable", blockTableOptional, layouts->paged);
    operation->Ignored("attenMask", attenMaskOptional);
    operation->LengthsQ("actualSeqQlen", actualSeqQlenOptional);
    operation->LengthsKv("actualSeqKlen", actualSeqKlenOptional);
    operation->Integers("startLoc", startLoc, &Args::start_loc);
    operation->Output("score", score, &Args::score);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnMsaIndexScore)
