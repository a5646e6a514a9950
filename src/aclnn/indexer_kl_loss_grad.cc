// Implements aclnnSparseLightningIndexerKLLossGrad as fa::PlanSparseLightningIndexerGradKLLoss with a given target.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/strided_copy.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_kl_loss_grad.h"
#include "fa/indexer_loss.h"

namespace fa::aclnn {
namespace {

/// Returns the names of this operator's parameters.
std::vector<Rename> KLGradNames(bool packed) {
  return {{"q_index", "q"},
          {"k_index", "k"},
          {"weights", "w"},
          {"p_head_mean", "attnSoftmaxL1Norm"},
          // Prefix sums have a leading 0, which is not passed to the library.
          {"lengths_q", packed ? "cuSeqLensQ" : "seqUsedQ", packed ? 1 : 0},
          {"lengths_kv", packed ? "cuSeqLensK" : "seqUsedK", packed ? 1 : 0},
          {"used_q", "seqUsedQ"},
          {"used_kv", "seqUsedK"},
          {"residual_kv", "cmpResidualK"},
          {"cmp_ratio", "cmpRatio"},
          {"mask", "maskMode"},
          {"layout", "layoutQ"},
          {"dq_index", "dq"},
          {"dk_index", "dk"},
          {"dweights", "dw"},
          {"softmax_index", "softmaxOut"}};
}

/// Returns the view without dimension `head`, if the dimension has size 1: there is one key head.
template <typename View>
View WithoutKeyHead(View view, int head) {
  const int rank = view.shape.rank();
  if (rank != head + 2 || view.shape[head] != 1) return view;
  const Dims stride = view.stride.empty() ? DenseStride(view.shape) : view.stride;
  Dims shape, kept;
  for (int i = 0; i < rank; ++i) {
    if (i == head) continue;
    shape.push_back(view.shape[i]);
    kept.push_back(stride[i]);
  }
  view.shape = shape;
  view.stride = kept;
  return view;
}

Result<SparseIndexerLossOptions> KLGradOptions(const char* layout_q, const char* layout_k, int64_t mask_mode,
                                               int64_t cmp_ratio) {
  const auto layouts = SparseLayoutsOf("layoutQ", layout_q, "layoutK", layout_k, /*pages=*/nullptr);
  if (!layouts.ok()) return layouts.status();
  const auto mask = SparseMaskOf(mask_mode, "maskMode");
  if (!mask.ok()) return mask.status();
  return SparseIndexerLossOptions{
      .layout = layouts->layout, .mask = *mask, .target = IndexerTarget::kGiven, .cmp_ratio = cmp_ratio};
}

/// Checks that prefix sums are given if rows are packed, and only then.
Status CheckSumsGiven(const char* name, const aclTensor* sums, bool packed) {
  if ((sums != nullptr) == packed) return Status::Ok();
  return Status::InvalidArgument(
      std::string(name) + (packed ? ": missing, want [B+1] (layoutQ TND)" : ": given, want null (layoutQ BSND)"));
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnSparseLightningIndexerKLLossGradGetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* w, const aclTensor* sparseIndices,
    const aclTensor* attnSoftmaxL1Norm, const aclTensor* cuSeqLensQOptional, const aclTensor* cuSeqLensKOptional,
    const aclTensor* seqUsedQOptional, const aclTensor* seqUsedKOptional, const aclTensor* cmpResidualKOptional,
    const aclTensor* metadataOptional, char* layoutQ, char* layoutK, int64_t maskMode, int64_t cmpRatio,
    const aclTensor* dq, const aclTensor* dk, const aclTensor* dw, const aclTensor* softmaxOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"q", q},
                                            {"k", k},
                                            {"w", w},
                                            {"sparseIndices", sparseIndices},
                                            {"attnSoftmaxL1Norm", attnSoftmaxL1Norm},
                                            {"layoutQ", layoutQ},
                                            {"layoutK", layoutK},
                                            {"dq", dq},
                                            {"dk", dk},
                                            {"dw", dw},
                                            {"softmaxOut", softmaxOut},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto options = KLGradOptions(layoutQ, layoutK, maskMode, cmpRatio);
    if (!options.ok()) return Report(options.status());
    const bool packed = options->layout == fa::Layout::kTND;
    for (const fa::Status& status : {CheckSumsGiven("cuSeqLensQ", cuSeqLensQOptional, packed),
                                     CheckSumsGiven("cuSeqLensK", cuSeqLensKOptional, packed)}) {
      if (!status.ok()) return Report(status);
    }
    using Args = fa::SparseIndexerLossArgs;
    auto operation = std::make_shared<SparseOperation<Args, fa::SparseIndexerLossOptions>>(
        fa::PlanSparseLightningIndexerGradKLLoss, Names::kIndexerLoss, KLGradNames(packed));
    operation->options = *options;
    operation->Input("q", q, &Args::q_index);
    operation->Input("k", k, &Args::k_index);
    operation->Input("w", w, &Args::weights);
    operation->Input("sparseIndices", sparseIndices, &Args::sparse_indices);
    operation->Input("attnSoftmaxL1Norm", attnSoftmaxL1Norm, &Args::p_head_mean);
    operation->Sequences({.cu_q = {"cuSeqLensQ", cuSeqLensQOptional},
                          .cu_kv = {"cuSeqLensK", cuSeqLensKOptional},
                          .used_q = {"seqUsedQ", seqUsedQOptional},
                          .used_kv = {"seqUsedK", seqUsedKOptional},
                          .residual_kv = {"cmpResidualK", cmpResidualKOptional}},
                         {.layout = options->layout});
    operation->Ignored("metadata", metadataOptional);
    operation->Output("dq", dq, &Args::dq_index);
    operation->Output("dk", dk, &Args::dk_index);
    operation->Output("dw", dw, &Args::dweights);
    operation->Output("softmaxOut", softmaxOut, &Args::softmax_index);
    operation->Adjust(
        [head = packed ? 1 : 2, loss_at = operation->Book(sizeof(float))](Args& args, const CallMemory* memory) {
          args.p_head_mean = WithoutKeyHead(args.p_head_mean, head);
          args.softmax_index = WithoutKeyHead(args.softmax_index, head);
          args.loss = Operands::Booked(fa::DType::kF32, {1}, loss_at, memory);  // the caller does not get the loss
        });
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseLightningIndexerKLLossGrad)
