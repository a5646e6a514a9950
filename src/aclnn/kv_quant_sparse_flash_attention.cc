// Implements aclnnKvQuantSparseFlashAttention and its V2 as fa::PlanSparseFlashAttention with a row format.
#include <memory>
#include <string>

#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnnop/aclnn_kv_quant_sparse_flash_attention.h"
#include "aclnnop/aclnn_kv_quant_sparse_flash_attention_v2.h"
#include "fa/sparse_flash_attention.h"

namespace fa::aclnn {
namespace {

constexpr Rename kQuantRowNames[] = {{"out", "out"},
                                     {"row_format", "keyQuantMode"},
                                     {"row_format.columns", "ropeHeadDim"},
                                     {"row_format.rope", "ropeHeadDim"},
                                     {"row_format.tile", "tileSize"}};

/// An attribute of which only one value is allowed.
struct OnlyValue {
  const char* name;
  int64_t got, want;
};

Status CheckOnlyValues(std::initializer_list<OnlyValue> values) {
  for (const OnlyValue& value : values) {
    if (value.got == value.want) continue;
    return Status::InvalidArgument(std::string(value.name) + "=" + std::to_string(value.got) + ", want " +
                                   std::to_string(value.want));
  }
  return Status::Ok();
}

/// Returns whether `value` has the memory, the shape and the type of `key`.
bool ValueIsKey(const aclTensor* key, const aclTensor* value) {
  const auto k = FindTensor(key), v = FindTensor(value);
  return k != nullptr && v != nullptr && k->data == v->data && k->offset == v->offset && k->shape == v->shape &&
         k->stride == v->stride && k->dtype == v->dtype;
}

/// Returns the row format of keys for this query. The library refuses a query without columns or with a wrong number of
/// dimensions.
Result<KeyRowFormat> RowFormatOf(const aclTensor* query, int64_t tile_size, int64_t rope_head_dim) {
  const auto found = FindTensor(query);
  const int rank = found == nullptr ? 0 : found->shape.rank();
  const int64_t d = rank == 3 || rank == 4 ? found->shape[rank - 1] : 0;
  if (tile_size < 1) return Status::InvalidArgument("tileSize=" + std::to_string(tile_size) + ", want at least 1");
  if (d < 1) return KeyRowFormat{.columns = 1, .tile = tile_size};
  if (rope_head_dim < 0 || rope_head_dim >= d) {
    return Status::InvalidArgument("ropeHeadDim=" + std::to_string(rope_head_dim) + ", want 0.." +
                                   std::to_string(d - 1) + " (query.shape[" + std::to_string(rank - 1) + "])");
  }
  return KeyRowFormat{.columns = d - rope_head_dim, .rope = rope_head_dim, .tile = tile_size};
}

Status CheckNull(const char* name, const aclTensor* tensor) {
  if (tensor == nullptr) return Status::Ok();
  return Status::InvalidArgument(std::string(name) + ": given, want null: scales lie in the rows of key");
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnKvQuantSparseFlashAttentionGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* keyDequantScaleOptional, const aclTensor* valueDequantScaleOptional,
    const aclTensor* blockTableOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, double scaleValue, int64_t keyQuantMode, int64_t valueQuantMode,
    int64_t sparseBlockSize, char* layoutQuery, char* layoutKv, int64_t sparseMode, int64_t preTokens,
    int64_t nextTokens, int64_t attentionMode, int64_t quantScaleRepoMode, int64_t tileSize, int64_t ropeHeadDim,
    const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return aclnnKvQuantSparseFlashAttentionV2GetWorkspaceSize(
      query, key, value, sparseIndices, keyDequantScaleOptional, valueDequantScaleOptional, blockTableOptional,
      actualSeqLengthsQueryOptional, actualSeqLengthsKvOptional, /*sinksOptional=*/nullptr, scaleValue, keyQuantMode,
      valueQuantMode, sparseBlockSize, layoutQuery, layoutKv, sparseMode, preTokens, nextTokens, attentionMode,
      quantScaleRepoMode, tileSize, ropeHeadDim, out, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnKvQuantSparseFlashAttention)

aclnnStatus aclnnKvQuantSparseFlashAttentionV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* sparseIndices,
    const aclTensor* keyDequantScaleOptional, const aclTensor* valueDequantScaleOptional,
    const aclTensor* blockTableOptional, const aclTensor* actualSeqLengthsQueryOptional,
    const aclTensor* actualSeqLengthsKvOptional, const aclTensor* sinksOptional, double scaleValue,
    int64_t keyQuantMode, int64_t valueQuantMode, int64_t sparseBlockSize, char* layoutQuery, char* layoutKv,
    int64_t sparseMode, int64_t /*preTokens*/, int64_t /*nextTokens*/, int64_t attentionMode,
    int64_t quantScaleRepoMode, int64_t tileSize, int64_t ropeHeadDim, const aclTensor* out, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  using Args = fa::SparseAttentionArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"value", value},
                                            {"sparseIndices", sparseIndices},
                                            {"layoutQuery", layoutQuery},
                                            {"layoutKv", layoutKv},
                                            {"out", out},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    for (const fa::Status& status : {CheckOnlyValues({{"keyQuantMode", keyQuantMode, 2},
                                                      {"valueQuantMode", valueQuantMode, 2},
                                                      {"attentionMode", attentionMode, 2},
                                                      {"quantScaleRepoMode", quantScaleRepoMode, 1}}),
                                     CheckNull("keyDequantScale", keyDequantScaleOptional),
                                     CheckNull("valueDequantScale", valueDequantScaleOptional)}) {
      if (!status.ok()) return Report(status);
    }
    const auto layouts = SparseLayoutsOf("layoutQuery", layoutQuery, "layoutKv", layoutKv);
    if (!layouts.ok()) return Report(layouts.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    const auto format = RowFormatOf(query, tileSize, ropeHeadDim);
    if (!format.ok()) return Report(format.status());
    auto operation = std::make_shared<SparseOperation<Args, fa::SparseAttentionOptions>>(
        fa::PlanSparseFlashAttention, Names::kSparseForward, kQuantRowNames);
    operation->options = {.layout = layouts->layout,
                          .scale = static_cast<float>(scaleValue),
                          .block_size = sparseBlockSize,
                          .mask = *mask,
                          .row_format = *format};
    operation->Input("query", query, &Args::q);
    operation->QuantizedInput("key", key, &Args::k);
    if (ValueIsKey(key, value)) {
      operation->Ignored("value", value);
    } else {
      operation->QuantizedInput("value", value, &Args::v);
    }
    operation->Input("sparseIndices", sparseIndices, &Args::sparse_indices);
    operation->Pages("blockTable", blockTableOptional, layouts->paged);
    operation->LengthsQ("actualSeqLengthsQuery", actualSeqLengthsQueryOptional);
    operation->LengthsKv("actualSeqLengthsKv", actualSeqLengthsKvOptional);
    operation->Input("sinks", sinksOptional, &Args::sink);
    operation->Output("out", out, &Args::out);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnKvQuantSparseFlashAttentionV2)
