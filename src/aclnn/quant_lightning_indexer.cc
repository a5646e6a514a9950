// Implements aclnnQuantLightningIndexer, aclnnLightningIndexerV2 and aclnnQuantLightningIndexerV2 with
// fa::PlanLightningIndexer.
#include <memory>
#include <string>

#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnnop/aclnn_lightning_indexer_v2.h"
#include "aclnnop/aclnn_quant_lightning_indexer.h"
#include "aclnnop/aclnn_quant_lightning_indexer_v2.h"
#include "fa/lightning_indexer.h"

namespace fa::aclnn {
namespace {

using IndexerOperation = SparseOperation<LightningIndexerArgs, LightningIndexerOptions>;

constexpr Rename kQuantIndexerNames[] = {
    {"sparse_indices", "out"}, {"q_scale", "queryDequantScale"}, {"k_scale", "keyDequantScale"}};

// The names of the second versions. BSND, TND and pages each have parameters of their own for lengths_q and lengths_kv.
// Prefix sums have a leading 0, which is not passed to the library.
#define FA_SECOND_NAMES(...)                                                                                 \
  {                                                                                                          \
    __VA_ARGS__, {"q", "q"}, {"k", "k"}, {"weights", "w"}, {"q_scale", "qDescale"}, {"k_scale", "kDescale"}, \
        {"used_q", "sequsedQ"}, {"used_kv", "sequsedK"}, {"residual_kv", "cmpResidualK"},                    \
        {"index_offset", "outputIdxOffset"}, {"mask", "maskMode"}, {"cmp_ratio", "cmpRatio"}, {              \
      "layout", "layoutQ"                                                                                    \
    }                                                                                                        \
  }
constexpr Rename kPaddedNames[] = FA_SECOND_NAMES({"lengths_q", "sequsedQ"}, {"lengths_kv", "sequsedK"});
constexpr Rename kPackedNames[] = FA_SECOND_NAMES({"lengths_q", "cuSeqlensQ", 1}, {"lengths_kv", "cuSeqlensK", 1});
constexpr Rename kPackedPagesNames[] = FA_SECOND_NAMES({"lengths_q", "cuSeqlensQ", 1}, {"lengths_kv", "sequsedK"});
#undef FA_SECOND_NAMES

std::span<const Rename> SecondNames(const SparseLayouts& layouts) {
  if (layouts.layout == Layout::kBSND) return kPaddedNames;
  return layouts.paged ? std::span<const Rename>(kPackedPagesNames) : kPackedNames;
}

/// The parameters that aclnnLightningIndexerV2 and aclnnQuantLightningIndexerV2 share, and the scales, which only
/// aclnnQuantLightningIndexerV2 has.
struct SecondVersion {
  const aclTensor *q, *k, *w, *q_descale, *k_descale, *cu_q, *cu_k, *used_q, *used_k, *residual, *table, *offset;
  const aclTensor* metadata;
  int64_t topk, max_seqlen_q;
  const char *layout_q, *layout_k;
  int64_t mask_mode, cmp_ratio, return_value;
  const aclTensor *indices, *values;
};

Status MissingWith(const char* name, const char* layout) {
  return Status::InvalidArgument(std::string(name) + ": missing, want int32 [B+1] (" + layout + ")");
}
Status UnwantedWith(const char* name, const char* reason) {
  return Status::InvalidArgument(std::string(name) + ": given, want null (" + reason + ")");
}

Status CheckSecond(const SecondVersion& call, const SparseLayouts& layouts) {
  const bool packed = layouts.layout == Layout::kTND;
  if (!packed && call.cu_q != nullptr) return UnwantedWith("cuSeqlensQ", "layoutQ is BSND");
  if (packed && call.cu_q == nullptr) return MissingWith("cuSeqlensQ", "layoutQ is TND");
  if ((!packed || layouts.paged) && call.cu_k != nullptr) return UnwantedWith("cuSeqlensK", "layoutK is not TND");
  if (packed && !layouts.paged && call.cu_k == nullptr) return MissingWith("cuSeqlensK", "layoutK is TND");
  if (call.return_value != 0 && call.return_value != 1) {
    return Status::InvalidArgument("returnValue=" + std::to_string(call.return_value) + ", want 0 or 1");
  }
  if (call.max_seqlen_q < -1) {
    return Status::InvalidArgument("maxSeqlenQ=" + std::to_string(call.max_seqlen_q) + ", want at least -1");
  }
  return CheckCountOfEntries("topk", call.topk, "sparseIndices", call.indices);
}

aclnnStatus PrepareSecond(const SecondVersion& call, uint64_t* workspace_size, aclOpExecutor** executor) {
  aclnnStatus error = CheckNotNull({{"q", call.q},
                                    {"k", call.k},
                                    {"w", call.w},
                                    {"sparseIndices", call.indices},
                                    {"workspaceSize", workspace_size},
                                    {"executor", executor}});
  if (error == ACLNN_SUCCESS && call.return_value == 1) error = CheckNotNull({{"sparseValues", call.values}});
  if (error != ACLNN_SUCCESS) return error;
  const auto layouts = SparseLayoutsOf("layoutQ", call.layout_q, "layoutK", call.layout_k, "PA_BBND");
  if (!layouts.ok()) return Report(layouts.status());
  const auto mask = SparseMaskOf(call.mask_mode, "maskMode");
  if (!mask.ok()) return Report(mask.status());
  if (const Status status = CheckSecond(call, *layouts); !status.ok()) return Report(status);
  auto operation = std::make_shared<IndexerOperation>(PlanLightningIndexer, Names::kIndexer, SecondNames(*layouts));
  operation->options = {.layout = layouts->layout, .mask = *mask, .cmp_ratio = call.cmp_ratio};
  using Args = LightningIndexerArgs;
  operation->QuantizedInput("q", call.q, &Args::q);
  operation->QuantizedInput("k", call.k, &Args::k);
  operation->Input("w", call.w, &Args::weights);
  if (call.q_descale != nullptr) {
    operation->Input("qDescale", call.q_descale, &Args::q_scale);
    operation->Input("kDescale", call.k_descale, &Args::k_scale);
  }
  operation->Sequences({.cu_q = {"cuSeqlensQ", call.cu_q},
                        .cu_kv = {"cuSeqlensK", call.cu_k},
                        .used_q = {"sequsedQ", call.used_q},
                        .used_kv = {"sequsedK", call.used_k},
                        .residual_kv = {"cmpResidualK", call.residual}},
                       *layouts);
  operation->Pages("blockTable", call.table, layouts->paged, "PA_BBND");
  operation->Input("outputIdxOffset", call.offset, &Args::index_offset);
  operation->Ignored("metadata", call.metadata);
  operation->Output("sparseIndices", call.indices, &Args::sparse_indices);
  operation->OutputIf(call.return_value == 1, "sparseValues", call.values, &Args::sparse_values);
  return Release(std::move(operation), workspace_size, executor);
}

/// Checks quantMode: 1 means ACL_FLOAT8_E4M3FN, and 2 means ACL_INT8.
Status CheckQuantMode(int64_t quant_mode, const aclTensor* q) {
  const char* refused = quant_mode == 3   ? "MX-quantised e4m3"
                        : quant_mode == 4 ? "HiFloat8"
                        : quant_mode == 5 ? "MX-quantised FP4"
                                          : nullptr;
  const std::string mode = "quantMode=" + std::to_string(quant_mode);
  if (refused != nullptr) return Status::InvalidArgument(mode + " (" + refused + ") is not served");
  if (quant_mode != 1 && quant_mode != 2) return Status::InvalidArgument(mode + ", want 1 (e4m3) or 2 (int8)");
  const auto found = FindTensor(q);
  const aclDataType want = quant_mode == 1 ? ACL_FLOAT8_E4M3FN : ACL_INT8;
  if (found == nullptr || found->dtype == want) return Status::Ok();
  return Status::InvalidArgument(mode + ", want q of type " + (quant_mode == 1 ? "f8e4m3" : "i8"));
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnQuantLightningIndexerGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* weights, const aclTensor* queryDequantScale,
    const aclTensor* keyDequantScale, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKeyOptional, const aclTensor* blockTableOptional, int64_t queryQuantMode,
    int64_t keyQuantMode, char* layoutQueryOptional, char* layoutKeyOptional, int64_t sparseCount, int64_t sparseMode,
    int64_t /*preTokens*/, int64_t /*nextTokens*/, const aclTensor* out, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  using Args = fa::LightningIndexerArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"weights", weights},
                                            {"queryDequantScale", queryDequantScale},
                                            {"keyDequantScale", keyDequantScale},
                                            {"out", out},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    for (const auto& [name, mode] : {std::pair{"queryQuantMode", queryQuantMode}, {"keyQuantMode", keyQuantMode}}) {
      if (mode == 0) continue;
      return Report(fa::Status::InvalidArgument(std::string(name) + "=" + std::to_string(mode) + ", want 0"));
    }
    const auto layouts = SparseLayoutsOf("layoutQuery", layoutQueryOptional, "layoutKey", layoutKeyOptional);
    if (!layouts.ok()) return Report(layouts.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    const fa::Status count = CheckCountOfEntries("sparseCount", sparseCount, "out", out);
    if (!count.ok()) return Report(count);
    auto operation = std::make_shared<IndexerOperation>(fa::PlanLightningIndexer, Names::kIndexer, kQuantIndexerNames);
    operation->options = {.layout = layouts->layout, .mask = *mask};
    operation->QuantizedInput("query", query, &Args::q);
    operation->QuantizedInput("key", key, &Args::k);
    operation->Input("weights", weights, &Args::weights);
    operation->Input("queryDequantScale", queryDequantScale, &Args::q_scale);
    operation->Input("keyDequantScale", keyDequantScale, &Args::k_scale);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQueryOptional);
    operation->LengthsKv("actualSeqLengthsKey", actualSeqLengthsKeyOptional);
    operation->Pages("blockTable", blockTableOptional, layouts->paged);
    operation->Output("out", out, &Args::sparse_indices);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnQuantLightningIndexer)

aclnnStatus aclnnLightningIndexerV2GetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional, const aclTensor* sequsedKOptional,
    const aclTensor* cmpResidualKOptional, const aclTensor* blockTableOptional,
    const aclTensor* outputIdxOffsetOptional, const aclTensor* metadataOptional, int64_t topk, int64_t maxSeqlenQ,
    char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio, int64_t returnValue,
    const aclTensor* sparseIndices, const aclTensor* sparseValues, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    return PrepareSecond({.q = q,
                          .k = k,
                          .w = w,
                          .q_descale = nullptr,
                          .k_descale = nullptr,
                          .cu_q = cuSeqlensQOptional,
                          .cu_k = cuSeqlensKOptional,
                          .used_q = sequsedQOptional,
                          .used_k = sequsedKOptional,
                          .residual = cmpResidualKOptional,
                          .table = blockTableOptional,
                          .offset = outputIdxOffsetOptional,
                          .metadata = metadataOptional,
                          .topk = topk,
                          .max_seqlen_q = maxSeqlenQ,
                          .layout_q = layoutQ,
                          .layout_k = layoutK,
                          .mask_mode = maskMode,
                          .cmp_ratio = cmpRatio,
                          .return_value = returnValue,
                          .indices = sparseIndices,
                          .values = sparseValues},
                         workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnLightningIndexerV2)

aclnnStatus aclnnQuantLightningIndexerV2GetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* qDescale, const aclTensor* kDescale,
    const aclTensor* cuSeqlensQOptional, const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedKOptional, const aclTensor* cmpResidualKOptional, const aclTensor* blockTableOptional,
    const aclTensor* outputIdxOffsetOptional, const aclTensor* metadataOptional, int64_t topk, int64_t quantMode,
    int64_t maxSeqlenQ, char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio, int64_t returnValue,
    const aclTensor* sparseIndices, const aclTensor* sparseValues, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"q", q}, {"qDescale", qDescale}, {"kDescale", kDescale}});
    if (error != ACLNN_SUCCESS) return error;
    if (const fa::Status status = CheckQuantMode(quantMode, q); !status.ok()) return Report(status);
    return PrepareSecond({.q = q,
                          .k = k,
                          .w = w,
                          .q_descale = qDescale,
                          .k_descale = kDescale,
                          .cu_q = cuSeqlensQOptional,
                          .cu_k = cuSeqlensKOptional,
                          .used_q = sequsedQOptional,
                          .used_k = sequsedKOptional,
                          .residual = cmpResidualKOptional,
                          .table = blockTableOptional,
                          .offset = outputIdxOffsetOptional,
                          .metadata = metadataOptional,
                          .topk = topk,
                          .max_seqlen_q = maxSeqlenQ,
                          .layout_q = layoutQ,
                          .layout_k = layoutK,
                          .mask_mode = maskMode,
                          .cmp_ratio = cmpRatio,
                          .return_value = returnValue,
                          .indices = sparseIndices,
                          .values = sparseValues},
                         workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnQuantLightningIndexerV2)
