// Implements aclnnSparseFlashMla and its gradient, L1 norm and metadata with fa::PlanSharedKvAttention,
// fa::PlanSharedKvAttentionGrad.
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "aclnn/operations/shared_kv_operation.h"
#include "aclnn/operations/sparse_operation.h"
#include "aclnnop/aclnn_sparse_flash_mla.h"
#include "aclnnop/aclnn_sparse_flash_mla_grad.h"
#include "aclnnop/aclnn_sparse_flash_mla_metadata.h"
#include "aclnnop/aclnn_sparse_flash_mla_softmax_l1_norm.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"

namespace fa::aclnn {
namespace {

using MlaArgs = SharedKvArgs;
using MlaGradArgs = SharedKvGradArgs;
template <typename Args>
using LengthForm = typename SharedKvOperation<Args>::LengthForm;

/// The number of integers that describe a split of work on the device.
constexpr int64_t kMetadataEntries = 1024;

struct MlaAttributes {
  double scale;
  int64_t ratio, ori_mask, cmp_mask, left, right;
};

void SetMlaOptions(const MlaAttributes& of, Layout layout, SharedKvOptions& options) {
  options.layout = layout;
  options.scale = static_cast<float>(of.scale);
  options.cmp_ratio = of.ratio;
  options.window_left = of.left;
  options.window_right = of.right;
  options.lse_without_keys = std::numeric_limits<float>::infinity();
}

/// Reads a mask mode. Mode 4 is a window, which only original keys have.
Status ReadMaskMode(const char* name, int64_t mode, bool window, SparseMask& mask) {
  if (mode != 0 && mode != 3 && !(window && mode == 4)) {
    return Status::InvalidArgument(std::string(name) + "=" + std::to_string(mode) +
                                   (window ? ", want 0, 3 or 4" : ", want 0 or 3"));
  }
  mask = static_cast<SparseMask>(mode);
  return Status::Ok();
}

/// Adds the lengths, which forward and gradient have in the same order.
template <typename Args>
struct MlaLengths {
  const aclTensor *cu_q, *cu_ori, *cu_cmp, *used_q, *used_ori, *used_cmp, *residual;
  TensorView Args::*ori_table = nullptr;
  TensorView Args::*cmp_table = nullptr;

  void AddTo(SharedKvOperation<Args>& operation) const {
    using Form = LengthForm<Args>;
    operation.Lengths("cuSeqlensQ", cu_q, Form::kSums, &Args::cu_q, &Args::q);
    operation.Lengths("cuSeqlensOriKv", cu_ori, Form::kSums, &Args::cu_ori, &Args::ori_kv);
    operation.Lengths("cuSeqlensCmpKv", cu_cmp, Form::kSums, &Args::cu_cmp, &Args::cmp_kv);
    operation.Lengths("sequsedQ", used_q, Form::kUsed, &Args::used_q, &Args::q);
    operation.Lengths("sequsedOriKv", used_ori, Form::kUsed, &Args::used_ori, &Args::ori_kv, ori_table);
    operation.Lengths("sequsedCmpKv", used_cmp, Form::kUsed, &Args::used_cmp, &Args::cmp_kv, cmp_table);
    operation.Lengths("cmpResidualKv", residual, Form::kResidual, &Args::cmp_residual);
  }
};

/// Fills metaData with zeros. The other tensors are not read.
class MetadataOperation final : public Operation {
 public:
  MetadataOperation(std::initializer_list<std::pair<const char*, const aclTensor*>> ignored, const aclTensor* tensor)
      : Operation(Operands()) {
    for (const auto& [name, of] : ignored) operands_.Ignored(name, of);
    slot_ = operands_.Output("metaData", tensor, Operands::Form::kDense);
  }

  [[nodiscard]] Status Check() const {
    if (!operands_.status().ok()) return operands_.status();
    const MutableTensorView tensor = operands_.Out(slot_, nullptr);
    if (tensor.dtype == DType::kI32 && tensor.shape == Dims{kMetadataEntries}) return Status::Ok();
    return Status::InvalidArgument("metaData: want int32 [1024]");
  }
  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    std::memset(operands_.Out(slot_, &memory).data, 0, kMetadataEntries * sizeof(int32_t));
    return Status::Ok();
  }

 private:
  Operands::Slot slot_ = Operands::kAbsent;
};

struct MlaNumber {
  const char* name;
  int64_t value, least;
};

Status CheckMlaNumbers(std::initializer_list<MlaNumber> numbers) {
  for (const MlaNumber& of : numbers) {
    if (of.value >= of.least) continue;
    return Status::InvalidArgument(std::string(of.name) + "=" + std::to_string(of.value) + ", want " +
                                   std::to_string(of.least) + " or more");
  }
  return Status::Ok();
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclnnStatus aclnnSparseFlashMlaGetWorkspaceSize(
    const aclTensor* q, const aclTensor* oriKvOptional, const aclTensor* cmpKvOptional,
    const aclTensor* oriSparseIndicesOptional, const aclTensor* cmpSparseIndicesOptional,
    const aclTensor* oriBlockTableOptional, const aclTensor* cmpBlockTableOptional, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensOriKvOptional, const aclTensor* cuSeqlensCmpKvOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedOriKvOptional, const aclTensor* sequsedCmpKvOptional,
    const aclTensor* cmpResidualKvOptional, const aclTensor* oriTopkLengthOptional,
    const aclTensor* cmpTopkLengthOptional, const aclTensor* sinksOptional, const aclTensor* metadataOptional,
    double softmaxScale, int64_t cmpRatio, int64_t oriMaskMode, int64_t cmpMaskMode, int64_t oriWinLeft,
    int64_t oriWinRight, char* layoutQOptional, char* layoutKvOptional, int64_t topkValueMode, bool returnSoftmaxLse,
    const aclTensor* attnOutOut, const aclTensor* softmaxLseOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    aclnnStatus error =
        CheckNotNull({{"q", q}, {"attnOut", attnOutOut}, {"workspaceSize", workspaceSize}, {"executor", executor}});
    if (error == ACLNN_SUCCESS && returnSoftmaxLse) error = CheckNotNull({{"softmaxLse", softmaxLseOutOptional}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQ", layoutQOptional, "layoutKv", layoutKvOptional, "PA_BBND");
    if (!layouts.ok()) return Report(layouts.status());
    auto operation = std::make_shared<SharedKvOperation<MlaArgs>>(fa::PlanSharedKvAttention, Names::kSharedKv);
    SetMlaOptions({softmaxScale, cmpRatio, oriMaskMode, cmpMaskMode, oriWinLeft, oriWinRight}, layouts->layout,
                  operation->options);
    fa::Status status = ReadMaskMode("oriMaskMode", oriMaskMode, true, operation->options.ori_mask);
    if (status.ok()) status = ReadMaskMode("cmpMaskMode", cmpMaskMode, false, operation->options.cmp_mask);
    if (status.ok() && topkValueMode != 1) {
      status = fa::Status::InvalidArgument("topkValueMode=" + std::to_string(topkValueMode) + ", want 1");
    }
    if (!status.ok()) return Report(status);
    operation->Input("q", q, &MlaArgs::q);
    operation->OptionalInput("oriKv", oriKvOptional, &MlaArgs::ori_kv);
    operation->OptionalInput("cmpKv", cmpKvOptional, &MlaArgs::cmp_kv);
    operation->OptionalInput("oriSparseIndices", oriSparseIndicesOptional, &MlaArgs::ori_indices);
    operation->OptionalInput("cmpSparseIndices", cmpSparseIndicesOptional, &MlaArgs::cmp_indices);
    struct Pages {
      const char* name;
      const aclTensor *keys, *table;
      fa::TensorView MlaArgs::*member;
    };
    for (const Pages& of : {Pages{"oriBlockTable", oriKvOptional, oriBlockTableOptional, &MlaArgs::ori_block_table},
                            Pages{"cmpBlockTable", cmpKvOptional, cmpBlockTableOptional, &MlaArgs::cmp_block_table}}) {
      if (!layouts->paged) {
        operation->Ignored(of.name, of.table);
        continue;
      }
      if (of.keys != nullptr && of.table == nullptr) {
        return Report(
            fa::Status::InvalidArgument(std::string(of.name) + ": missing, want int32 [B,n] (layoutKv is PA_BBND)"));
      }
      operation->OptionalInput(of.name, of.table, of.member);
    }
    MlaLengths<MlaArgs>{cuSeqlensQOptional,    cuSeqlensOriKvOptional,    cuSeqlensCmpKvOptional,
                        sequsedQOptional,      sequsedOriKvOptional,      sequsedCmpKvOptional,
                        cmpResidualKvOptional, &MlaArgs::ori_block_table, &MlaArgs::cmp_block_table}
        .AddTo(*operation);
    operation->OptionalInput("oriTopkLength", oriTopkLengthOptional, &MlaArgs::ori_topk_length);
    operation->OptionalInput("cmpTopkLength", cmpTopkLengthOptional, &MlaArgs::cmp_topk_length);
    operation->OptionalInput("sinks", sinksOptional, &MlaArgs::sink);
    operation->Ignored("metadata", metadataOptional);
    operation->OptionalOutput("attnOut", attnOutOut, &MlaArgs::out);
    if (returnSoftmaxLse) {
      operation->OptionalOutput("softmaxLse", softmaxLseOutOptional, &MlaArgs::lse);
    } else {
      operation->Ignored("softmaxLse", softmaxLseOutOptional, /*output=*/true);
    }
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashMla)

aclnnStatus aclnnSparseFlashMlaGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* dOut, const aclTensor* out, const aclTensor* lse,
    const aclTensor* oriKvOptional, const aclTensor* cmpKvOptional, const aclTensor* oriSparseIndicesOptional,
    const aclTensor* cmpSparseIndicesOptional, const aclTensor* cuSeqlensQOptional,
    const aclTensor* cuSeqlensOriKvOptional, const aclTensor* cuSeqlensCmpKvOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedOriKvOptional, const aclTensor* sequsedCmpKvOptional,
    const aclTensor* cmpResidualKvOptional, const aclTensor* oriTopkLengthOptional,
    const aclTensor* cmpTopkLengthOptional, const aclTensor* sinksOptional, const aclTensor* metadataOptional,
    double scaleValue, int64_t cmpRatio, int64_t oriMaskMode, int64_t cmpMaskMode, int64_t oriWinLeft,
    int64_t oriWinRight, char* layoutQOptional, char* layoutKvOptional, const aclTensor* dQueryOut,
    const aclTensor* dOriKvOutOptional, const aclTensor* dCmpKvOutOptional, const aclTensor* dSinksOutOptional,
    const aclTensor* oriSoftmaxL1NormOutOptional, const aclTensor* cmpSoftmaxL1NormOutOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"query", query},
                                            {"dOut", dOut},
                                            {"out", out},
                                            {"lse", lse},
                                            {"dQuery", dQueryOut},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQ", layoutQOptional, "layoutKv", layoutKvOptional, /*pages=*/nullptr);
    if (!layouts.ok()) return Report(layouts.status());
    auto operation =
        std::make_shared<SharedKvOperation<MlaGradArgs>>(fa::PlanSharedKvAttentionGrad, Names::kSharedKvBackward);
    SetMlaOptions({scaleValue, cmpRatio, oriMaskMode, cmpMaskMode, oriWinLeft, oriWinRight}, layouts->layout,
                  operation->options);
    fa::Status status = ReadMaskMode("oriMaskMode", oriMaskMode, true, operation->options.ori_mask);
    if (status.ok()) status = ReadMaskMode("cmpMaskMode", cmpMaskMode, false, operation->options.cmp_mask);
    if (!status.ok()) return Report(status);
    operation->Input("query", query, &MlaGradArgs::q);
    operation->Input("dOut", dOut, &MlaGradArgs::d_out);
    operation->Input("out", out, &MlaGradArgs::out);
    operation->Input("lse", lse, &MlaGradArgs::lse);
    operation->OptionalInput("oriKv", oriKvOptional, &MlaGradArgs::ori_kv);
    operation->OptionalInput("cmpKv", cmpKvOptional, &MlaGradArgs::cmp_kv);
    operation->OptionalInput("oriSparseIndices", oriSparseIndicesOptional, &MlaGradArgs::ori_indices);
    operation->OptionalInput("cmpSparseIndices", cmpSparseIndicesOptional, &MlaGradArgs::cmp_indices);
    MlaLengths<MlaGradArgs>{cuSeqlensQOptional,   cuSeqlensOriKvOptional, cuSeqlensCmpKvOptional, sequsedQOptional,
                            sequsedOriKvOptional, sequsedCmpKvOptional,   cmpResidualKvOptional}
        .AddTo(*operation);
    operation->OptionalInput("oriTopkLength", oriTopkLengthOptional, &MlaGradArgs::ori_topk_length);
    operation->OptionalInput("cmpTopkLength", cmpTopkLengthOptional, &MlaGradArgs::cmp_topk_length);
    operation->OptionalInput("sinks", sinksOptional, &MlaGradArgs::sink);
    operation->Ignored("metadata", metadataOptional);
    operation->OptionalOutput("dQuery", dQueryOut, &MlaGradArgs::dq);
    operation->OptionalOutput("dOriKv", dOriKvOutOptional, &MlaGradArgs::d_ori_kv);
    operation->OptionalOutput("dCmpKv", dCmpKvOutOptional, &MlaGradArgs::d_cmp_kv);
    operation->OptionalOutput("dSinks", dSinksOutOptional, &MlaGradArgs::dsink);
    operation->OptionalOutput("oriSoftmaxL1Norm", oriSoftmaxL1NormOutOptional, &MlaGradArgs::ori_l1_norm);
    operation->OptionalOutput("cmpSoftmaxL1Norm", cmpSoftmaxL1NormOutOptional, &MlaGradArgs::cmp_l1_norm);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashMlaGrad)

aclnnStatus aclnnSparseFlashMlaSoftmaxL1NormGetWorkspaceSize(
    const aclTensor* q, const aclTensor* k, const aclTensor* softmaxLse, const aclTensor* sparseIndicesOptional,
    const aclTensor* cuSeqlensQOptional, const aclTensor* cuSeqlensKOptional, const aclTensor* sequsedQOptional,
    const aclTensor* sequsedKOptional, const aclTensor* cmpResidualKOptional, const aclTensor* topkLengthOptional,
    const aclTensor* metadataOptional, double softmaxScale, int64_t cmpRatio, int64_t maskMode, char* layoutQOptional,
    char* layoutKOptional, const aclTensor* softmaxL1Norm, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"q", q},
                                            {"k", k},
                                            {"softmaxLse", softmaxLse},
                                            {"softmaxL1Norm", softmaxL1Norm},
                                            {"workspaceSize", workspaceSize},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQ", layoutQOptional, "layoutK", layoutKOptional, /*pages=*/nullptr);
    if (!layouts.ok()) return Report(layouts.status());
    auto operation =
        std::make_shared<SharedKvOperation<MlaGradArgs>>(fa::PlanSharedKvAttentionGrad, Names::kSharedKvL1Norm);
    SetMlaOptions({softmaxScale, cmpRatio, 0, maskMode, -1, -1}, layouts->layout, operation->options);
    fa::Status status = ReadMaskMode("maskMode", maskMode, false, operation->options.cmp_mask);
    if (!status.ok()) return Report(status);
    using Form = LengthForm<MlaGradArgs>;
    operation->Input("q", q, &MlaGradArgs::q);
    operation->Input("k", k, &MlaGradArgs::cmp_kv);
    operation->Input("softmaxLse", softmaxLse, &MlaGradArgs::lse);
    operation->OptionalInput("sparseIndices", sparseIndicesOptional, &MlaGradArgs::cmp_indices);
    operation->Lengths("cuSeqlensQ", cuSeqlensQOptional, Form::kSums, &MlaGradArgs::cu_q, &MlaGradArgs::q);
    operation->Lengths("cuSeqlensK", cuSeqlensKOptional, Form::kSums, &MlaGradArgs::cu_cmp, &MlaGradArgs::cmp_kv);
    operation->Lengths("sequsedQ", sequsedQOptional, Form::kUsed, &MlaGradArgs::used_q, &MlaGradArgs::q);
    operation->Lengths("sequsedK", sequsedKOptional, Form::kUsed, &MlaGradArgs::used_cmp, &MlaGradArgs::cmp_kv);
    operation->Lengths("cmpResidualK", cmpResidualKOptional, Form::kResidual, &MlaGradArgs::cmp_residual);
    operation->OptionalInput("topkLength", topkLengthOptional, &MlaGradArgs::cmp_topk_length);
    operation->Ignored("metadata", metadataOptional);
    operation->OptionalOutput("softmaxL1Norm", softmaxL1Norm, &MlaGradArgs::cmp_l1_norm);
    return Release(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashMlaSoftmaxL1Norm)

aclnnStatus aclnnSparseFlashMlaMetadataGetWorkspaceSize(
    const aclTensor* cuSeqlensQOptional, const aclTensor* cuSeqlensOriKvOptional,
    const aclTensor* cuSeqlensCmpKvOptional, const aclTensor* sequsedQOptional, const aclTensor* sequsedOriKvOptional,
    const aclTensor* sequsedCmpKvOptional, const aclTensor* cmpResidualKvOptional,
    const aclTensor* oriTopkLengthOptional, const aclTensor* cmpTopkLengthOptional, int64_t numHeadsQ,
    int64_t numHeadsKv, int64_t headDim, int64_t batchSize, int64_t maxSeqlenQ, int64_t maxSeqlenOriKv,
    int64_t maxSeqlenCmpKv, int64_t oriTopk, int64_t cmpTopk, int64_t cmpRatio, int64_t oriMaskMode,
    int64_t cmpMaskMode, int64_t oriWinLeft, int64_t oriWinRight, const char* layoutQOptional,
    const char* layoutKvOptional, bool hasOriKv, bool hasCmpKv, const aclTensor* metaData, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error =
        CheckNotNull({{"metaData", metaData}, {"workspaceSize", workspaceSize}, {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto layouts = SparseLayoutsOf("layoutQ", layoutQOptional, "layoutKv", layoutKvOptional, "PA_BBND");
    if (!layouts.ok()) return Report(layouts.status());
    fa::SparseMask mask;
    fa::Status status = ReadMaskMode("oriMaskMode", oriMaskMode, true, mask);
    if (status.ok()) status = ReadMaskMode("cmpMaskMode", cmpMaskMode, false, mask);
    if (status.ok()) {
      status = CheckMlaNumbers({{"numHeadsQ", numHeadsQ, 0},
                                {"numHeadsKv", numHeadsKv, 0},
                                {"headDim", headDim, 0},
                                {"batchSize", batchSize, 0},
                                {"maxSeqlenQ", maxSeqlenQ, 0},
                                {"maxSeqlenOriKv", maxSeqlenOriKv, 0},
                                {"maxSeqlenCmpKv", maxSeqlenCmpKv, 0},
                                {"oriTopk", oriTopk, 0},
                                {"cmpTopk", cmpTopk, 0},
                                {"cmpRatio", cmpRatio, 1},
                                {"oriWinLeft", oriWinLeft, -1},
                                {"oriWinRight", oriWinRight, -1}});
    }
    if (status.ok() && !hasOriKv && !hasCmpKv) {
      status = fa::Status::InvalidArgument("hasOriKv=false, want true, or hasCmpKv=true");
    }
    if (!status.ok()) return Report(status);
    using Ignored = std::initializer_list<std::pair<const char*, const aclTensor*>>;
    auto operation = std::make_shared<MetadataOperation>(Ignored{{"cuSeqlensQ", cuSeqlensQOptional},
                                                                 {"cuSeqlensOriKv", cuSeqlensOriKvOptional},
                                                                 {"cuSeqlensCmpKv", cuSeqlensCmpKvOptional},
                                                                 {"sequsedQ", sequsedQOptional},
                                                                 {"sequsedOriKv", sequsedOriKvOptional},
                                                                 {"sequsedCmpKv", sequsedCmpKvOptional},
                                                                 {"cmpResidualKv", cmpResidualKvOptional},
                                                                 {"oriTopkLength", oriTopkLengthOptional},
                                                                 {"cmpTopkLength", cmpTopkLengthOptional}},
                                                         metaData);
    if (status = operation->Check(); !status.ok()) return Report(status);
    return ReleaseExecutor(std::move(operation), workspaceSize, executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseFlashMlaMetadata)
