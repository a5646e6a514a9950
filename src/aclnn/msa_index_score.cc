// Implements aclnnMsaIndexScore with fa::PlanMsaIndexScore.
#include "fa/msa_index_score.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/descriptors.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/strided_copy.h"
#include "aclnnop/aclnn_msa_index_score.h"

namespace fa::aclnn {
namespace {

/// How keys lie in memory.
enum class KeyForm : uint8_t { kPacked, kRowsFirst, kHeadsFirst };

/// Returns the form that "TND", "BBND" or "BNBD" names. Null and "" stand for "BBND".
Result<KeyForm> KeyFormOf(const char* layout) {
  const std::string_view name = layout == nullptr || *layout == 0 ? "BBND" : layout;
  if (name == "TND") return KeyForm::kPacked;
  if (name == "BBND") return KeyForm::kRowsFirst;
  if (name == "BNBD") return KeyForm::kHeadsFirst;
  return Status::InvalidArgument("layoutKey=\"" + std::string(name) + "\", want \"TND\", \"BBND\" or \"BNBD\"");
}

/// Exchanges dimensions 1 and 2 of pages [blocks,heads,rows,...], so that rows come before heads.
void PutRowsFirst(TensorView& pages) {
  if (pages.stride.empty()) pages.stride = DenseStride(pages.shape);
  std::swap(pages.shape[1], pages.shape[2]);
  std::swap(pages.stride[1], pages.stride[2]);
}

/// Converts pages of keys and their scales to the library's order of dimensions.
void TakePages(MsaIndexScoreArgs& args, KeyForm form) {
  if (form == KeyForm::kPacked) return;
  if (form == KeyForm::kHeadsFirst && args.k.shape.rank() == 4) PutRowsFirst(args.k);
  // Scales may have their head before their rows in both forms of keys.
  if (args.k_scale.shape.rank() == 3 && args.k_scale.shape[1] == 1) PutRowsFirst(args.k_scale);
}

/// Gives the score a column for each block of the longest sequence that the shapes allow. The first phase plans for
/// such a sequence, although the lengths that the run reads may need fewer columns.
void WidenScore(MsaIndexScoreArgs& args) {
  const Dims& keys = args.k.shape;
  if (args.score.shape.rank() != 3 || keys.rank() == 0) return;
  const int64_t most = args.block_table.data != nullptr ? MostPagedKeys(keys, args.block_table.shape) : keys[0];
  const int64_t blocks = most / kMsaBlockSize + (most % kMsaBlockSize != 0 ? 1 : 0);
  if (args.score.shape[2] >= blocks) return;
  args.score.shape[2] = blocks;
  args.score.stride = {};
}

Status CheckMasks(const aclTensor* mask, SparseMask sparse_mask) {
  if (mask == nullptr || sparse_mask != SparseMask::kNone) return Status::Ok();
  return Status::InvalidArgument("attenMask: given, want null (sparseMode 0)");
}

/// Checks that scales of pages have one of their two shapes. The library would name dimensions of its own form.
Status CheckPageScales(const aclTensor* scale, const aclTensor* key, KeyForm form) {
  const auto found = FindTensor(scale), keys = FindTensor(key);
  if (form == KeyForm::kPacked || found == nullptr || keys == nullptr || keys->shape.rank() != 4) return Status::Ok();
  const int64_t blocks = keys->shape[0], rows = keys->shape[form == KeyForm::kHeadsFirst ? 2 : 1];
  if (found->shape == Dims{blocks, 1, rows} || found->shape == Dims{blocks, rows, 1}) return Status::Ok();
  const std::string first = "[" + std::to_string(blocks) + ",", size = std::to_string(rows);
  return Status::InvalidArgument("scale.shape: want " + first + "1," + size + "] or " + first + size + ",1] (key)");
}

/// Checks that pages [blocks,heads,rows,...] have one key head. The error names dimension 1 of the caller's tensor.
Status CheckOneHead(const aclTensor* key, KeyForm form) {
  const auto found = FindTensor(key);
  if (form != KeyForm::kHeadsFirst || found == nullptr || found->shape.rank() != 4 || found->shape[1] == 1) {
    return Status::Ok();
  }
  return Status::InvalidArgument("key.shape[1]=" + std::to_string(found->shape[1]) + ", want 1 (one key head)");
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnMsaIndexScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* blockTableOptional, const aclTensor* scaleOptional,
    const aclTensor* attenMaskOptional, const aclTensor* actualSeqQlenOptional, const aclTensor* actualSeqKlenOptional,
    const aclTensor* startLoc, char* layoutKeyOptional, int64_t sparseMode, int64_t initBlocks, int64_t localBlocks,
    const aclTensor* score, uint64_t* workspaceSize, aclOpExecutor** executor) {
  using Args = fa::MsaIndexScoreArgs;
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"key", key},
                                            {"startLoc", startLoc},
                                            {"score", score},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto form = KeyFormOf(layoutKeyOptional);
    if (!form.ok()) return Report(form.status());
    const auto mask = SparseMaskOf(sparseMode);
    if (!mask.ok()) return Report(mask.status());
    for (const fa::Status& status :
         {CheckMasks(attenMaskOptional, *mask), CheckOneHead(key, *form), CheckPageScales(scaleOptional, key, *form)}) {
      if (!status.ok()) return Report(status);
    }
    const bool packed = *form == KeyForm::kPacked;
    // Prefix sums have a leading 0, which is not passed to the library.
    const Rename sums[] = {{"lengths_q", "actualSeqQlen", 1}, {"lengths_kv", "actualSeqKlen", packed ? 1 : 0}};
    auto operation = std::make_shared<SparseOperation<Args, fa::MsaIndexScoreOptions>>(fa::PlanMsaIndexScore,
                                                                                       Names::kIndexScore, sums);
    operation->options = {.mask = *mask, .init_blocks = initBlocks, .local_blocks = localBlocks};
    operation->QuantizedInput("query", query, &Args::q);
    operation->QuantizedInput("key", key, &Args::k);
    operation->Pages("blockTable", blockTableOptional, !packed, *form == KeyForm::kRowsFirst ? "BBND" : "BNBD");
    operation->Input("scale", scaleOptional, &Args::k_scale);
    operation->Ignored("attenMask", attenMaskOptional);
    operation->SumsQ("actualSeqQlen", actualSeqQlenOptional);
    if (packed) {
      operation->SumsKv("actualSeqKlen", actualSeqKlenOptional);
    } else {
      operation->LengthsKv("actualSeqKlen", actualSeqKlenOptional);
    }
    operation->Adjust([form = *form](Args& args, const CallMemory* memory) {
      TakePages(args, form);
      if (memory == nullptr) WidenScore(args);
    });
    operation->Integers("startLoc", startLoc, &Args::start_loc);
    operation->Output("score", score, &Args::score);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnMsaIndexScore)
