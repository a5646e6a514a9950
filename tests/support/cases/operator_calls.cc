#include "support/cases/operator_calls.h"

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "fa/fa.h"
#include "support/cases/random_values.h"

namespace fa::test {
namespace {

// The sizes are large enough for several blocks of rows and keys in each kernel, and small enough for sanitizers.
constexpr int64_t kBatch = 2, kHeads = 4, kRows = 40, kKeys = 72, kSize = 16, kSlots = 36;

size_t Elements(const Dims& shape) {
  size_t elements = 1;
  for (const int64_t size : shape) elements *= static_cast<size_t>(size);
  return elements;
}

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

AttentionArgs ForwardArgs(CallTensors& tensors) {
  AttentionArgs args;
  args.q = tensors.Input({kBatch, kHeads, kRows, kSize});
  args.k = tensors.Input({kBatch, kHeads / 2, kKeys, kSize});
  args.v = tensors.Input({kBatch, kHeads / 2, kKeys, kSize});
  args.pse = tensors.Input({kBatch, kHeads, kRows, kKeys});
  args.out = tensors.Output({kBatch, kHeads, kRows, kSize});
  args.softmax_max = tensors.Output({kBatch, kHeads, kRows});
  args.softmax_sum = tensors.Output({kBatch, kHeads, kRows});
  args.lse = tensors.Output({kBatch, kHeads, kRows});
  return args;
}

// The scores differ so much that some probabilities are subnormal.
AttentionOptions ForwardOptions() {
  AttentionOptions options;
  options.scale = 3.0f;
  options.mask = Mask::Causal();
  options.keep_prob = 0.9f;
  options.dropout = PhiloxState{.seed = 1, .offset = 2};
  return options;
}

SparseAttentionArgs SparseArgs(CallTensors& tensors) {
  SparseAttentionArgs args;
  args.q = tensors.Input({kBatch, kRows, kHeads, kSize});
  args.k = tensors.Input({kBatch, kKeys, 1, kSize});
  args.v = tensors.Input({kBatch, kKeys, 1, kSize});
  args.sparse_indices = tensors.Lists({kBatch, kRows, 1, kSlots}, kKeys);
  args.out = tensors.Output({kBatch, kRows, kHeads, kSize});
  args.softmax_max = tensors.Output({kBatch, 1, kRows, kHeads});
  args.softmax_sum = tensors.Output({kBatch, 1, kRows, kHeads});
  return args;
}

// Adds the indexer's tensors to the arguments of a loss, sparse or dense.
template <typename Args>
void FillLoss(CallTensors& tensors, Args* args) {
  args->q_index = tensors.Input({kBatch, kRows, 3, 16});
  args->k_index = tensors.Input({kBatch, kKeys, 1, 16});
  args->weights = tensors.Input({kBatch, kRows, 3});
  args->dq_index = tensors.Output(args->q_index.shape);
  args->dk_index = tensors.Output(args->k_index.shape);
  args->dweights = tensors.Output(args->weights.shape);
  args->loss = tensors.Output({1});
}

OperatorCall DropoutMask(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  constexpr int64_t kWords = 1 << 17;
  const MutableTensorView mask = tensors->Output({kWords});
  const auto run = [=](Context* context) {
    const std::span<uint8_t> bytes(static_cast<uint8_t*>(mask.data), 4 * kWords);
    return GenerateDropoutMask({.seed = 5, .offset = 6}, 0.7f, 32 * kWords, bytes, context);
  };
  return {.name = "DropoutMask", .tensors = tensors, .run = run, .plan = nullptr};
}

constexpr std::pair<std::string_view, OperatorCall (*)(ValueKind)> kMakers[] = {
#define FA_MAKER(name, function, args, options, text) {#name, Small##name##Call},
    FA_OPERATORS(FA_MAKER)
#undef FA_MAKER
        {"DropoutMask", DropoutMask},
};

}  // namespace

OperatorCall SmallForwardCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  const AttentionArgs args = ForwardArgs(*tensors);
  return MakeOperatorCall("Forward", tensors, args, ForwardOptions(), FlashAttention, PlanFlashAttention);
}

OperatorCall SmallBackwardCall(ValueKind kind) {
  auto forward_tensors = std::make_shared<CallTensors>(kind);
  const AttentionArgs forward = ForwardArgs(*forward_tensors);
  Require(FlashAttention(forward, ForwardOptions()));
  auto tensors = std::make_shared<CallTensors>(kind);
  AttentionGradArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.pse = forward.pse;
  args.out = forward.out;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
  args.d_out = tensors->Input(forward.out.shape);
  args.dq = tensors->Output(forward.q.shape);
  args.dk = tensors->Output(forward.k.shape);
  args.dv = tensors->Output(forward.v.shape);
  args.dpse = tensors->Output(forward.pse.shape);
  return MakeOperatorCall("Backward", tensors, args, ForwardOptions(), FlashAttentionGrad, PlanFlashAttentionGrad,
                          forward_tensors);
}

OperatorCall SmallPromptCall(ValueKind kind) {
  auto forward_tensors = std::make_shared<CallTensors>(kind);
  auto tensors = std::make_shared<CallTensors>(kind);
  const AttentionArgs forward = ForwardArgs(*forward_tensors);
  PromptAttentionArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.out = tensors->Output(forward.out.shape);
  PromptAttentionOptions options;
  options.mask = Mask::Causal();
  return MakeOperatorCall("Prompt", tensors, args, options, PromptFlashAttention, PlanPromptFlashAttention,
                          forward_tensors);
}

OperatorCall SmallDecodeCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  struct Keys {
    TensorView k, v;
  };
  const auto keys = std::make_shared<Keys>();
  keys->k = tensors->Input({kBatch, kHeads / 2, 8 * kKeys, kSize});
  keys->v = tensors->Input({kBatch, kHeads / 2, 8 * kKeys, kSize});
  DecodeAttentionArgs args;
  args.q = tensors->Input({kBatch, kHeads, 1, kSize});
  args.k = std::span<const TensorView>(&keys->k, 1);
  args.v = std::span<const TensorView>(&keys->v, 1);
  args.out = tensors->Output({kBatch, kHeads, 1, kSize});
  args.lse = tensors->Output({kBatch, kHeads, 1});
  DecodeAttentionOptions options;
  options.scale = 3.0f;
  return MakeOperatorCall("Decode", tensors, args, options, DecodeAttention, PlanDecodeAttention, keys);
}

OperatorCall SmallSparseForwardCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  SparseAttentionArgs args = SparseArgs(*tensors);
  args.p_head_mean = tensors->Output({kBatch, kRows, kSlots});
  return MakeOperatorCall("SparseForward", tensors, args, SparseAttentionOptions(), SparseFlashAttention,
                          PlanSparseFlashAttention);
}

OperatorCall SmallSparseBackwardCall(ValueKind kind) {
  auto forward_tensors = std::make_shared<CallTensors>(kind);
  const SparseAttentionArgs forward = SparseArgs(*forward_tensors);
  Require(SparseFlashAttention(forward, {}));
  auto tensors = std::make_shared<CallTensors>(kind);
  SparseAttentionGradArgs args;
  args.q = forward.q;
  args.k = forward.k;
  args.v = forward.v;
  args.sparse_indices = forward.sparse_indices;
  args.out = forward.out;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
  args.d_out = tensors->Input(forward.out.shape);
  args.dq = tensors->Output(forward.q.shape);
  args.dk = tensors->Output(forward.k.shape);
  args.dv = tensors->Output(forward.v.shape);
  return MakeOperatorCall("SparseBackward", tensors, args, SparseAttentionOptions(), SparseFlashAttentionGrad,
                          PlanSparseFlashAttentionGrad, forward_tensors);
}

OperatorCall SmallIndexerCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  LightningIndexerArgs args;
  args.q = tensors->Input({kBatch, kRows, kHeads, kSize});
  args.k = tensors->Input({kBatch, kKeys, 1, kSize});
  args.weights = tensors->Input({kBatch, kRows, kHeads});
  args.sparse_indices = tensors->Output({kBatch, kRows, 1, kSlots}, DType::kI32);
  args.sparse_values = tensors->Output({kBatch, kRows, 1, kSlots});
  return MakeOperatorCall("Indexer", tensors, args, LightningIndexerOptions(), LightningIndexer, PlanLightningIndexer);
}

OperatorCall SmallIndexerBackwardCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  LightningIndexerGradArgs args;
  args.q = tensors->Input({kBatch, kRows, kHeads, kSize});
  args.k = tensors->Input({kBatch, kKeys, 1, kSize});
  args.weights = tensors->Input({kBatch, kRows, kHeads});
  args.sparse_indices = tensors->Lists({kBatch, kRows, 1, kSlots}, kKeys);
  args.d_values = tensors->Input({kBatch, kRows, 1, kSlots});
  args.dq = tensors->Output(args.q.shape);
  args.dk = tensors->Output(args.k.shape);
  args.dweights = tensors->Output(args.weights.shape);
  return MakeOperatorCall("IndexerBackward", tensors, args, LightningIndexerGradOptions(), LightningIndexerGrad,
                          PlanLightningIndexerGrad);
}

OperatorCall SmallIndexerLossCall(ValueKind kind) {
  auto forward_tensors = std::make_shared<CallTensors>(kind);
  const SparseAttentionArgs forward = SparseArgs(*forward_tensors);
  Require(SparseFlashAttention(forward, {}));
  auto tensors = std::make_shared<CallTensors>(kind);
  SparseIndexerLossArgs args;
  FillLoss(*tensors, &args);
  args.q = forward.q;
  args.k = forward.k;
  args.sparse_indices = forward.sparse_indices;
  args.softmax_max = forward.softmax_max;
  args.softmax_sum = forward.softmax_sum;
  return MakeOperatorCall("IndexerLoss", tensors, args, SparseIndexerLossOptions(), SparseLightningIndexerGradKLLoss,
                          PlanSparseLightningIndexerGradKLLoss, forward_tensors);
}

OperatorCall SmallDenseIndexerLseCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  DenseIndexerLseArgs args;
  args.q_index = tensors->Input({kBatch, kRows, kHeads, kSize});
  args.k_index = tensors->Input({kBatch, kKeys, 1, kSize});
  args.weights = tensors->Input({kBatch, kRows, kHeads});
  args.softmax_max_index = tensors->Output({kBatch, 1, kRows});
  args.softmax_sum_index = tensors->Output({kBatch, 1, kRows});
  return MakeOperatorCall("DenseIndexerLse", tensors, args, DenseIndexerLseOptions(), DenseLightningIndexerSoftmaxLse,
                          PlanDenseLightningIndexerSoftmaxLse);
}

// The statistics need not belong to the scores, because two runs with the same statistics give the same bits.
OperatorCall SmallDenseIndexerLossCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  DenseIndexerLossArgs args;
  FillLoss(*tensors, &args);
  args.q = tensors->Input({kBatch, kRows, kHeads, kSize});
  args.k = tensors->Input({kBatch, kKeys, 1, kSize});
  args.softmax_max = tensors->Constant({kBatch, 1, kRows, kHeads}, 2);
  args.softmax_sum = tensors->Constant({kBatch, 1, kRows, kHeads}, 9);
  args.softmax_max_index = tensors->Constant({kBatch, 1, kRows}, 3);
  args.softmax_sum_index = tensors->Constant({kBatch, 1, kRows}, 7);
  return MakeOperatorCall("DenseIndexerLoss", tensors, args, DenseIndexerLossOptions(), DenseLightningIndexerGradKLLoss,
                          PlanDenseLightningIndexerGradKLLoss);
}

OperatorCall SmallIndexerLossValueCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  constexpr int64_t kManyRows = 16 * kRows;  // enough entries for several tasks
  IndexerKLLossArgs args;
  args.target = tensors->Constant({kManyRows, kSlots}, 0.25F);
  args.probabilities = tensors->Constant({kManyRows, kSlots}, 0.125F);
  args.loss = tensors->Output({1});
  return MakeOperatorCall("IndexerLossValue", tensors, args, IndexerKLLossOptions(), IndexerKLLoss, PlanIndexerKLLoss);
}

OperatorCall SmallIndexScoreCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  static constexpr int64_t kRowSums[] = {kRows, 2 * kRows}, kKeySums[] = {kKeys, 4 * kKeys};
  MsaIndexScoreArgs args;
  args.q = tensors->Input({2 * kRows, kHeads, kSize});
  args.k = tensors->Input({4 * kKeys, 1, kSize});
  args.lengths_q = kRowSums;
  args.lengths_kv = kKeySums;
  args.score = tensors->Output({kHeads, 2 * kRows, 2});
  return MakeOperatorCall("IndexScore", tensors, args, MsaIndexScoreOptions(), MsaIndexScore, PlanMsaIndexScore);
}

OperatorCall SmallMergeCall(ValueKind kind) {
  auto tensors = std::make_shared<CallTensors>(kind);
  constexpr int64_t kManyRows = 16 * kRows;  // enough rows for several tasks
  const Dims shape = {kBatch, kHeads, kManyRows, kSize}, statistics = {kBatch, kHeads, kManyRows};
  MergeArgs args;
  args.prev_out = tensors->Input(shape);
  args.cur_out = tensors->Input(shape);
  args.prev_max = tensors->Input(statistics);
  args.cur_max = tensors->Input(statistics);
  args.prev_sum = tensors->Constant(statistics, 3);
  args.cur_sum = tensors->Constant(statistics, 5);
  args.out = tensors->Output(shape);
  args.softmax_max = tensors->Output(statistics);
  args.softmax_sum = tensors->Output(statistics);
  return MakeOperatorCall("Merge", tensors, args, MergeOptions{.layout = Layout::kBNSD}, MergePartials,
                          PlanMergePartials);
}

std::vector<uint32_t>& CallTensors::Add(std::deque<std::vector<uint32_t>>& to, const Dims& shape) {
  return to.emplace_back(Elements(shape));
}

TensorView CallTensors::Input(const Dims& shape) {
  std::vector<uint32_t>& words = Add(inputs_, shape);
  for (uint32_t& word : words) {
    const auto place = static_cast<int64_t>(++drawn_);
    const double value = RandomNormal(1, Tag::kChoice, {place});
    const bool denormal = kind_ == ValueKind::kDenormal && place % 2 == 0;
    word = std::bit_cast<uint32_t>(static_cast<float>(denormal ? std::ldexp(value, -130) : value));
  }
  return {words.data(), DType::kF32, shape, {}};
}

TensorView CallTensors::Constant(const Dims& shape, float value) {
  std::vector<uint32_t>& words = Add(inputs_, shape);
  for (uint32_t& word : words) word = std::bit_cast<uint32_t>(value);
  return {words.data(), DType::kF32, shape, {}};
}

TensorView CallTensors::Lists(const Dims& shape, int64_t keys) {
  std::vector<uint32_t>& words = Add(inputs_, shape);
  const auto slots = static_cast<size_t>(shape[shape.rank() - 1]);
  const auto step = static_cast<uint32_t>(keys) / static_cast<uint32_t>(slots);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i % slots) * step;
  return {words.data(), DType::kI32, shape, {}};
}

MutableTensorView CallTensors::Output(const Dims& shape, DType dtype) {
  return {Add(outputs_, shape).data(), dtype, shape, {}};
}

std::vector<uint32_t> CallTensors::OutputBits() const {
  std::vector<uint32_t> bits;
  for (const std::vector<uint32_t>& output : outputs_) bits.insert(bits.end(), output.begin(), output.end());
  return bits;
}

void CallTensors::ForgetOutputs() {
  const auto nan = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
  for (std::vector<uint32_t>& output : outputs_) output.assign(output.size(), nan);
}

std::vector<OperatorCall> EveryOperator(ValueKind kind) {
  std::vector<OperatorCall> calls;
  for (const auto& [name, make] : kMakers) calls.push_back(make(kind));
  return calls;
}

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kMakers) names.emplace_back(name);
  return names;
}

OperatorCall OperatorOf(const std::string& name, ValueKind kind) {
  for (const auto& [made, make] : kMakers) {
    if (made == name) return make(kind);
  }
  throw std::out_of_range(name);
}

}  // namespace fa::test
