// Implements both versions of aclnnRingAttentionUpdate with fa::MergePartials. Packed statistics may hold one block
// [N,S_b,8] per sequence. Then each sequence is merged by itself: a block is [S_b,N,8] with other strides, so no data
// is moved.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/names.h"
#include "aclnn/operations/sequence_lengths.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/operands.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/strided_copy.h"
#include "aclnnop/aclnn_ring_attention_update.h"
#include "fa/merge.h"

namespace fa::aclnn {
namespace {

using Form = Operands::Form;
using Slot = Operands::Slot;

constexpr int64_t kCopies = 8;

struct MergeTensors {
  const aclTensor *prev_out, *prev_max, *prev_sum, *cur_out, *cur_max, *cur_sum, *lengths, *out, *max, *sum;
};

struct MergeCall {
  const char* layout;
  const char* softmax_layout = nullptr;
};

struct MergeSettings {
  bool packed = false;
  bool by_sequence = false;  ///< packed statistics hold one block per sequence
};

Result<MergeSettings> SettingsOf(const MergeCall& call) {
  const std::string_view layout = call.layout == nullptr ? "SBH" : call.layout;
  if (layout != "SBH" && layout != "TND") {
    return Status::InvalidArgument("inputLayout=\"" + std::string(layout) + "\", want \"SBH\" or \"TND\"");
  }
  const std::string_view softmax = call.softmax_layout == nullptr ? "" : call.softmax_layout;
  if (!softmax.empty() && softmax != "SBH" && softmax != "TND") {
    return Status::InvalidArgument("inputSoftmaxLayout=\"" + std::string(softmax) +
                                   "\", want \"\", \"SBH\" or \"TND\"");
  }
  const bool packed = layout == "TND";
  return MergeSettings{.packed = packed, .by_sequence = packed && softmax != "TND"};
}

struct MergeSlots {
  Slot prev_out, prev_max, prev_sum, cur_out, cur_max, cur_sum, lengths, out, max, sum;
};

MergeSlots AddOperands(const MergeTensors& tensors, const MergeSettings& settings, Operands& operands) {
  const Form statistics = settings.by_sequence ? Form::kDense : Form::kAnyStride;
  MergeSlots slots{};
  slots.prev_out = operands.Input("prevAttnOut", tensors.prev_out);
  slots.prev_max = operands.Input("prevSoftmaxMax", tensors.prev_max, statistics);
  slots.prev_sum = operands.Input("prevSoftmaxSum", tensors.prev_sum, statistics);
  slots.cur_out = operands.Input("curAttnOut", tensors.cur_out);
  slots.cur_max = operands.Input("curSoftmaxMax", tensors.cur_max, statistics);
  slots.cur_sum = operands.Input("curSoftmaxSum", tensors.cur_sum, statistics);
  slots.lengths = Operands::kAbsent;
  if (settings.by_sequence) {
    slots.lengths = operands.Input("actualSeqQlen", tensors.lengths, Form::kFlat);
  } else {
    operands.Ignored("actualSeqQlen", tensors.lengths);
  }
  slots.out = operands.OutputInPlace("attnOut", tensors.out, Form::kRows, slots.prev_out);
  slots.max = operands.OutputInPlace("softmaxMax", tensors.max, statistics, slots.prev_max);
  slots.sum = operands.OutputInPlace("softmaxSum", tensors.sum, statistics, slots.prev_sum);
  return slots;
}

// Returns the rows [begin, end) of a tensor's first dimension, such as the rows of one sequence of a tensor [T,N,D].
template <typename View>
View RowsOf(View view, int64_t begin, int64_t end) {
  if (view.stride.empty()) view.stride = DenseStride(view.shape);
  using Bytes =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const std::byte*, std::byte*>;
  view.data = static_cast<Bytes>(view.data) + begin * view.stride[0] * static_cast<int64_t>(SizeOf(view.dtype));
  view.shape[0] = end - begin;
  return view;
}

// Returns the block [N,S_b,8] of one sequence of dense statistics, viewed as [S_b,N,8].
template <typename View>
View BlockOf(View view, int64_t begin, int64_t end) {
  view.stride = {};
  View block = RowsOf(view, begin, end);
  block.stride = {kCopies, (end - begin) * kCopies, 1};
  return block;
}

class MergeOperation final : public Operation {
 public:
  MergeOperation(Operands operands, const MergeSlots& slots, MergeSettings settings)
      : Operation(std::move(operands)), slots_(slots), settings_(settings) {
    options_.layout = settings.packed ? Layout::kTND : Layout::kSBH;
  }

  [[nodiscard]] Status Prepare() const {
    const MergeArgs args = Args(nullptr);
    if (Status status = CheckMergePartials(args, options_); !status.ok()) return Renamed(status, Names::kMerge);
    return settings_.by_sequence ? CheckBlocks(args) : Status::Ok();
  }

  [[nodiscard]] Status Run(const CallMemory& memory) const override {
    FA_RETURN_IF_ERROR(operands_.PackInputs(memory));
    const MergeArgs args = Args(&memory);
    Status status = settings_.by_sequence ? MergeSequences(args, memory) : MergePartials(args, options_);
    if (!status.ok()) return Renamed(status, Names::kMerge);
    operands_.ScatterOutputs(memory);
    return status;
  }

 private:
  [[nodiscard]] MergeArgs Args(const CallMemory* memory) const {
    const auto out = [&](Slot slot) {
      MutableTensorView view = operands_.Out(slot, memory);
      if (memory == nullptr) view.data = nullptr;  // only shapes are checked here; addresses are not known yet
      return view;
    };
    const auto in = [&](Slot slot) { return TensorView(out(slot)); };
    MergeArgs args;
    args.prev_out = in(slots_.prev_out);
    args.prev_max = in(slots_.prev_max);
    args.prev_sum = in(slots_.prev_sum);
    args.cur_out = in(slots_.cur_out);
    args.cur_max = in(slots_.cur_max);
    args.cur_sum = in(slots_.cur_sum);
    args.out = out(slots_.out);
    args.softmax_max = out(slots_.max);
    args.softmax_sum = out(slots_.sum);
    return args;
  }

  // Checks what only statistics in blocks need: eight copies per value, and lengths of an integer type.
  [[nodiscard]] Status CheckBlocks(const MergeArgs& args) const {
    const std::pair<const char*, const Dims*> statistics[] = {
        {"prevSoftmaxMax", &args.prev_max.shape}, {"prevSoftmaxSum", &args.prev_sum.shape},
        {"curSoftmaxMax", &args.cur_max.shape},   {"curSoftmaxSum", &args.cur_sum.shape},
        {"softmaxMax", &args.softmax_max.shape},  {"softmaxSum", &args.softmax_sum.shape}};
    for (const auto& [name, shape] : statistics) {
      if (shape->rank() != 3) return Status::InvalidArgument(std::string(name) + ".shape: want [T,N,8]");
    }
    if (slots_.lengths == Operands::kAbsent) {
      return Status::InvalidArgument("actualSeqQlen: missing, want prefix sums with a leading 0 (inputLayout TND)");
    }
    const DType dtype = operands_.In(slots_.lengths, nullptr).dtype;
    if (dtype == DType::kI64 || dtype == DType::kI32) return Status::Ok();
    return Status::InvalidArgument(std::string("actualSeqQlen.dtype=") + Name(dtype) + ", want i64 or i32");
  }

  [[nodiscard]] Result<std::vector<int64_t>> PrefixSums(int64_t tokens, const CallMemory& memory) const {
    std::vector<int64_t> sums = IntegersOf(operands_.In(slots_.lengths, &memory));
    int64_t before = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t most = i == 0 ? 0 : tokens;
      if (sums[i] < before || sums[i] > most) {
        return Status::InvalidArgument("actualSeqQlen[" + std::to_string(i) + "]=" + std::to_string(sums[i]) +
                                       ", want " +
                                       (i == 0 ? "0" : std::to_string(before) + ".." + std::to_string(most)));
      }
      before = sums[i];
    }
    if (before == tokens) return sums;
    return Status::InvalidArgument("actualSeqQlen: ends with " + std::to_string(before) + ", want " +
                                   std::to_string(tokens) + " (prevAttnOut.shape[0])");
  }

  [[nodiscard]] Status MergeSequences(const MergeArgs& args, const CallMemory& memory) const {
    // All blocks are checked before the first one is written.
    FA_RETURN_IF_ERROR(CheckMergePartials(args, options_));
    auto sums = PrefixSums(args.out.shape[0], memory);
    if (!sums.ok()) return sums.status();
    for (size_t b = 0; b + 1 < sums->size(); ++b) {
      const int64_t begin = (*sums)[b];
      const int64_t end = (*sums)[b + 1];
      if (begin == end) continue;
      MergeArgs sequence;
      sequence.prev_out = RowsOf(args.prev_out, begin, end);
      sequence.prev_max = BlockOf(args.prev_max, begin, end);
      sequence.prev_sum = BlockOf(args.prev_sum, begin, end);
      sequence.cur_out = RowsOf(args.cur_out, begin, end);
      sequence.cur_max = BlockOf(args.cur_max, begin, end);
      sequence.cur_sum = BlockOf(args.cur_sum, begin, end);
      sequence.out = RowsOf(args.out, begin, end);
      sequence.softmax_max = BlockOf(args.softmax_max, begin, end);
      sequence.softmax_sum = BlockOf(args.softmax_sum, begin, end);
      FA_RETURN_IF_ERROR(MergePartials(sequence, options_));
    }
    return Status::Ok();
  }

  MergeSlots slots_;
  MergeSettings settings_;
  MergeOptions options_;
};

aclnnStatus PrepareMerge(const MergeTensors& tensors, const MergeCall& call, uint64_t* workspace_size,
                         aclOpExecutor** executor) noexcept {
  return GuardedOperator([&]() -> aclnnStatus {
    const aclnnStatus error = CheckNotNull({{"prevAttnOut", tensors.prev_out},
                                            {"prevSoftmaxMax", tensors.prev_max},
                                            {"prevSoftmaxSum", tensors.prev_sum},
                                            {"curAttnOut", tensors.cur_out},
                                            {"curSoftmaxMax", tensors.cur_max},
                                            {"curSoftmaxSum", tensors.cur_sum},
                                            {"attnOut", tensors.out},
                                            {"softmaxMax", tensors.max},
                                            {"softmaxSum", tensors.sum},
                                            {"workspaceSize", workspace_size},
                                            {"executor", executor}});
    if (error != ACLNN_SUCCESS) return error;
    const auto settings = SettingsOf(call);
    if (!settings.ok()) return Report(settings.status());
    Operands operands;
    const MergeSlots slots = AddOperands(tensors, *settings, operands);
    if (!operands.status().ok()) return Report(operands.status());
    auto operation = std::make_shared<MergeOperation>(std::move(operands), slots, *settings);
    if (Status status = operation->Prepare(); !status.ok()) return Report(status);
    return ReleaseExecutor(std::move(operation), workspace_size, executor);
  });
}

}  // namespace
}  // namespace fa::aclnn

using fa::aclnn::PrepareMerge;

aclnnStatus aclnnRingAttentionUpdateGetWorkspaceSize(const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax,
                                                     const aclTensor* prevSoftmaxSum, const aclTensor* curAttnOut,
                                                     const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
                                                     const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional,
                                                     const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut,
                                                     const aclTensor* softmaxSumOut, uint64_t* workspaceSize,
                                                     aclOpExecutor** executor) {
  return PrepareMerge({prevAttnOut, prevSoftmaxMax, prevSoftmaxSum, curAttnOut, curSoftmaxMax, curSoftmaxSum,
                       actualSeqQlenOptional, attnOutOut, softmaxMaxOut, softmaxSumOut},
                      {.layout = inputLayoutOptional}, workspaceSize, executor);
}

FA_DEFINE_EXECUTE(aclnnRingAttentionUpdate)

aclnnStatus aclnnRingAttentionUpdateV2GetWorkspaceSize(const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax,
                                                       const aclTensor* prevSoftmaxSum, const aclTensor* curAttnOut,
                                                       const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
                                                       const aclTensor* actualSeqQlenOptional,
                                                       char* inputLayoutOptional, char* inputSoftmaxLayoutOptional,
                                                       const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut,
                                                       const aclTensor* softmaxSumOut, uint64_t* workspaceSize,
                                                       aclOpExecutor** executor) {
  return PrepareMerge({prevAttnOut, prevSoftmaxMax, prevSoftmaxSum, curAttnOut, curSoftmaxMax, curSoftmaxSum,
                       actualSeqQlenOptional, attnOutOut, softmaxMaxOut, softmaxSumOut},
                      {.layout = inputLayoutOptional, .softmax_layout = inputSoftmaxLayoutOptional}, workspaceSize,
                      executor);
}

FA_DEFINE_EXECUTE(aclnnRingAttentionUpdateV2)
