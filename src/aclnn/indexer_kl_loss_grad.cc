// aclnnSparseLightningIndexerKLLossGrad -> fa::PlanSparseLightningIndexerGradKLLoss with a given target.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/operations/planned_operation.h"
#include "aclnn/operations/sequence_lengths.h"
#include "aclnn/operations/sparse_operation.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/strided_copy.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_kl_loss_grad.h"
#include "fa/indexer_loss.h"

namespace fa::aclnn {
namespace {

struct KLGradSlots {
  Operands::Slot q, k, w, indices, p;
  Operands::Slot dq = Operands::kAbsent, dk = dq, dw = dq, y = dq;
};

/// The lists of a call, which lie in tensors.
struct KLGradLengths {
  SequenceLengths cu_q, cu_k, used_q, used_k, residual;

  [[nodiscard]] Status status() const {
    for (const SequenceLengths* list : {&cu_q, &cu_k, &used_q, &used_k, &residual}) {
      FA_RETURN_IF_ERROR(list->status());
    }
    return Status::Ok();
  }
};

/// Returns the names of this operator's parameters.
std::vector<Rename> KLGradNames(bool packed) {
  return {{"q_index", "q"},
          {"k_index", "k"},
          {"weights", "w"},
          {"p_head_mean", "attnSoftmaxL1Norm"},
          {"lengths_q", packed ? "cuSeqLensQ" : "seqUsedQ"},
          {"lengths_kv", packed ? "cuSeqLensK" : "seqUsedK"},
          {"residual_kv", "cmpResidualK"},
          {"cmp_ratio", "cmpRatio"},
          {"mask", "maskMode"},
          {"layout", "layoutQ"},
          {"dq_index", "dq"},
          {"dk_index", "dk"},
          {"dweights", "dw"},
          {"softmax_index", "softmaxOut"}};
}

class KLGradOperation final : public PlannedOperation<SparseIndexerLossArgs> {
 public:
  KLGradOperation(Operands operands, const KLGradSlots& slots, const KLGradLengths& tensors,
                  const SparseIndexerLossOptions& options)
      : PlannedOperation(std::move(operands), Names::kIndexerLoss, KLGradNames(options.layout == Layout::kTND)),
        slots_(slots),
        tensors_(tensors),
        options_(options),
        loss_at_(operands_.Book(sizeof(float))) {}

  // Lengths lie in tensors. So the first phase plans for one sequence that has every row.
  [[nodiscard]] Status Prepare() {
    Lengths lengths;
    FA_RETURN_IF_ERROR(ReadLengths(nullptr, &lengths));
    return Keep(PlanSparseLightningIndexerGradKLLoss(Args(nullptr, lengths), options_));
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    Lengths lengths;
    FA_RETURN_IF_ERROR(ReadLengths(&memory, &lengths));
    const SparseIndexerLossArgs args = Args(&memory, lengths);
    FA_RETURN_IF_ERROR(RunOtherPlan(PlanSparseLightningIndexerGradKLLoss(args, options_), args, memory));
    operands_.ScatterOutputs(memory);
    return Status::Ok();
  }

 private:
  /// The lists of a call. In TND, `q` and `kv` are the caller's prefix sums. Their leading 0 is an empty sequence, for
  /// which the other lists have a leading 0 too.
  struct Lengths {
    std::vector<int64_t> q, kv, used_q, used_kv, residual;
  };

  [[nodiscard]] bool packed() const { return options_.layout == Layout::kTND; }

  [[nodiscard]] Status ReadLengths(const CallMemory* memory, Lengths* lengths) const {
    if (packed()) {
      FA_RETURN_IF_ERROR(ReadSums("cuSeqLensQ", tensors_.cu_q, slots_.q, memory, &lengths->q));
      FA_RETURN_IF_ERROR(ReadSums("cuSeqLensK", tensors_.cu_k, slots_.k, memory, &lengths->kv));
    }
    if (memory == nullptr) return Status::Ok();
    if (!packed()) {
      lengths->q = tensors_.used_q.Values(0, operands_, memory);
      lengths->kv = tensors_.used_k.Values(0, operands_, memory);
      lengths->residual = tensors_.residual.Values(0, operands_, memory);
      return Status::Ok();
    }
    const auto rows_of = [](const std::vector<int64_t>& sums) {
      return [&sums](size_t b) { return sums[b + 1] - sums[b]; };
    };
    const size_t batch = lengths->q.size() - 1;
    FA_RETURN_IF_ERROR(ReadNumbers("seqUsedQ", tensors_.used_q, *memory, batch, rows_of(lengths->q), &lengths->used_q));
    if (lengths->kv.size() == lengths->q.size()) {  // the library refuses other sizes
      FA_RETURN_IF_ERROR(
          ReadNumbers("seqUsedK", tensors_.used_k, *memory, batch, rows_of(lengths->kv), &lengths->used_kv));
    }
    const auto most = [this](size_t /*b*/) { return options_.cmp_ratio - 1; };
    return ReadNumbers("cmpResidualK", tensors_.residual, *memory, batch, most, &lengths->residual);
  }

  [[nodiscard]] Status ReadSums(const char* name, const SequenceLengths& tensor, Operands::Slot rows,
                                const CallMemory* memory, std::vector<int64_t>* sums) const {
    const Dims shape = operands_.In(rows, nullptr).shape;
    *sums = tensor.Values(shape.empty() ? 0 : shape[0], operands_, memory);
    if (sums->empty()) return Status::InvalidArgument(std::string(name) + " has 0 entries, want at least 1");
    if (memory == nullptr) sums->front() = 0;
    for (size_t b = 0; b < sums->size(); ++b) {
      const int64_t least = b == 0 ? 0 : (*sums)[b - 1], sum = (*sums)[b];
      if (b == 0 ? sum == 0 : sum >= least) continue;
      return Status::InvalidArgument(std::string(name) + "[" + std::to_string(b) + "]=" + std::to_string(sum) +
                                     ", want " + (b == 0 ? "" : ">= ") + std::to_string(least));
    }
    return Status::Ok();
  }

  /// Reads one number per packed sequence, 0..most(b), behind a 0 for the empty sequence.
  template <typename Most>
  [[nodiscard]] Status ReadNumbers(const char* name, const SequenceLengths& tensor, const CallMemory& memory,
                                   size_t batch, const Most& most, std::vector<int64_t>* numbers) const {
    if (!tensor.in_tensor()) return Status::Ok();
    *numbers = tensor.Values(0, operands_, &memory);
    if (numbers->size() != batch) {
      return Status::InvalidArgument(std::string(name) + " has " + std::to_string(numbers->size()) + " entries, want " +
                                     std::to_string(batch));
    }
    for (size_t b = 0; b < batch; ++b) {
      const int64_t number = (*numbers)[b];
      if (number >= 0 && number <= most(b)) continue;
      return Status::InvalidArgument(std::string(name) + "[" + std::to_string(b) + "]=" + std::to_string(number) +
                                     ", want 0.." + std::to_string(most(b)));
    }
    numbers->insert(numbers->begin(), 0);
    return Status::Ok();
  }

  /// Returns a tensor of entries without the dimension of one key head.
  template <typename View>
  [[nodiscard]] View Entries(View view) const {
    const int rank = view.shape.rank(), head = packed() ? 1 : 2;
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

  [[nodiscard]] SparseIndexerLossArgs Args(const CallMemory* memory, const Lengths& lengths) const {
    SparseIndexerLossArgs args;
    args.q_index = operands_.In(slots_.q, memory);
    args.k_index = operands_.In(slots_.k, memory);
    args.weights = operands_.In(slots_.w, memory);
    args.sparse_indices = operands_.In(slots_.indices, memory);
    args.p_head_mean = Entries(operands_.In(slots_.p, memory));
    args.lengths_q = lengths.q;
    args.lengths_kv = lengths.kv;
    args.used_q = lengths.used_q;
    args.used_kv = lengths.used_kv;
    args.residual_kv = lengths.residual;
    args.dq_index = operands_.Out(slots_.dq, memory);
    args.dk_index = operands_.Out(slots_.dk, memory);
    args.dweights = operands_.Out(slots_.dw, memory);
    args.loss = Operands::Booked(DType::kF32, {1}, loss_at_, memory);
    args.softmax_index = Entries(operands_.Out(slots_.y, memory));
    return args;
  }

  KLGradSlots slots_;
  KLGradLengths tensors_;
  SparseIndexerLossOptions options_;
  size_t loss_at_;
};

Result<SparseIndexerLossOptions> KLGradOptions(const char* layout_q, const char* layout_k, int64_t mask_mode,
                                               int64_t cmp_ratio) {
  const auto layouts = SparseLayoutsOf("layoutQ", layout_q, "layoutK", layout_k);
  if (!layouts.ok()) return layouts.status();
  if (layouts->paged) return Status::InvalidArgument("layoutK=\"PA_BSND\", want that of layoutQ");
  if (mask_mode != 0 && mask_mode != 3) {
    return Status::InvalidArgument("maskMode=" + std::to_string(mask_mode) + ", want 0 or 3");
  }
  return SparseIndexerLossOptions{.layout = layouts->layout,
                                  .mask = mask_mode == 0 ? SparseMask::kNone : SparseMask::kRightDownCausal,
                                  .target = IndexerTarget::kGiven,
                                  .cmp_ratio = cmp_ratio};
}

/// Checks that prefix sums are given exactly with packed rows.
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
    Operands operands;
    KLGradSlots slots{.q = operands.Input("q", q),
                      .k = operands.Input("k", k),
                      .w = operands.Input("w", w),
                      .indices = operands.Input("sparseIndices", sparseIndices),
                      .p = operands.Input("attnSoftmaxL1Norm", attnSoftmaxL1Norm)};
    const KLGradLengths lengths{.cu_q = {"cuSeqLensQ", cuSeqLensQOptional, operands},
                                .cu_k = {"cuSeqLensK", cuSeqLensKOptional, operands},
                                .used_q = {"seqUsedQ", seqUsedQOptional, operands},
                                .used_k = {"seqUsedK", seqUsedKOptional, operands},
                                .residual = {"cmpResidualK", cmpResidualKOptional, operands}};
    operands.Ignored("metadata", metadataOptional);
    slots.dq = operands.Output("dq", dq);
    slots.dk = operands.Output("dk", dk);
    slots.dw = operands.Output("dw", dw);
    slots.y = operands.Output("softmaxOut", softmaxOut);
    for (const fa::Status& status : {operands.status(), lengths.status()}) {
      if (!status.ok()) return Report(status);
    }
    return Release(std::make_shared<KLGradOperation>(std::move(operands), slots, lengths, *options), workspaceSize,
                   executor);
  });
}

FA_DEFINE_EXECUTE(aclnnSparseLightningIndexerKLLossGrad)
