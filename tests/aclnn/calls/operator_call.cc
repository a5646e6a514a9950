#include "aclnn/calls/operator_call.h"

#include <cstring>
#include <limits>
#include <stdexcept>

#include "aclnnop/aclnn_attention_update.h"
#include "aclnnop/aclnn_dense_lightning_indexer_grad_kl_loss.h"
#include "aclnnop/aclnn_dense_lightning_indexer_softmax_lse.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "aclnnop/aclnn_flash_attention_score_grad.h"
#include "aclnnop/aclnn_fused_infer_attention_score.h"
#include "aclnnop/aclnn_gather_pa_kv_cache.h"
#include "aclnnop/aclnn_incre_flash_attention.h"
#include "aclnnop/aclnn_lightning_indexer.h"
#include "aclnnop/aclnn_lightning_indexer_grad.h"
#include "aclnnop/aclnn_lightning_indexer_kl_loss.h"
#include "aclnnop/aclnn_msa_index_score.h"
#include "aclnnop/aclnn_prompt_flash_attention.h"
#include "aclnnop/aclnn_ring_attention_update.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"
#include "aclnnop/aclnn_sparse_flash_attention.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad.h"
#include "aclnnop/aclnn_sparse_flash_mla.h"
#include "aclnnop/aclnn_sparse_flash_mla_grad.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss.h"

namespace fa::test {
namespace {

constexpr int64_t kHeads = 2, kQueries = 4, kKeys = 6, kSize = 8, kRope = 5, kSelected = 3;
// A spread tensor has its elements kSpread elements apart. The first one is element kOffset of the memory.
constexpr int64_t kSpread = 3, kOffset = 5;
constexpr int64_t kNoLimit = 2147483647;
constexpr double kScale = 0.3;  // no float holds 0.3 exactly

const std::vector<int64_t> kQueryRows = {1, kHeads, kQueries, kSize}, kKeyRows = {1, kHeads, kKeys, kSize};
const std::vector<int64_t> kPackedQueries = {kQueries, kHeads, kSize}, kPackedKeys = {kKeys, kHeads, kSize};
const std::vector<int64_t> kStatistics = {1, kHeads, kQueries, 8}, kPackedStatistics = {kQueries, kHeads, 8};

// The interface takes its strings as char*, and does not write to them.
char* Text(const char* text) { return const_cast<char*>(text); }

}  // namespace

const std::vector<Family>& AllFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (auto family = Family::kForward; family <= Family::kMergePacked;) {
      all.push_back(family);
      family = static_cast<Family>(static_cast<uint8_t>(family) + 1);
    }
    return all;
  }();
  return families;
}

const char* Name(Family family) {
  constexpr const char* kNames[] = {
#define FA_NAME(name, function, args, options, text) #name,
      FA_OPERATORS(FA_NAME)
#undef FA_NAME
          "ForwardPacked",
      "BackwardPacked",
      "MergePacked",
  };
  return kNames[static_cast<size_t>(family)];
}

std::ostream& operator<<(std::ostream& os, Family family) { return os << Name(family); }

int64_t OperatorCall::Tensor::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

OperatorCall::OperatorCall(Family family, Spacing spacing, const ClaimedSize& claim)
    : family_(family), spacing_(spacing), claim_(claim) {
  const auto claimed = [&](int64_t size) { return size == claim.size ? claim.claimed : size; };
  const int64_t sums_q[] = {1, claimed(kQueries)}, sums_kv[] = {2, claimed(kKeys)};
  lengths_q_ = aclCreateIntArray(sums_q, 2);
  lengths_kv_ = aclCreateIntArray(sums_kv, 2);
  AddTensors();
  ForgetResults();
}

OperatorCall::~OperatorCall() {
  Drop();
  aclDestroyTensorList(keys_);
  aclDestroyTensorList(values_);
  for (const Tensor& tensor : tensors_) aclDestroyTensor(tensor.handle);
  aclDestroyIntArray(lengths_q_);
  aclDestroyIntArray(lengths_kv_);
}

const aclTensor* OperatorCall::Add(const std::string& name, bool output, const std::vector<int64_t>& shape,
                                   aclDataType dtype) {
  Tensor& tensor = tensors_.emplace_back();
  tensor.name = name;
  tensor.output = output;
  tensor.dtype = dtype;
  tensor.shape = tensor.stride = shape;
  const bool spread = spacing_ == Spacing::kSpread;
  int64_t step = spread ? kSpread : 1;
  for (size_t i = shape.size(); i-- > 0;) {
    tensor.stride[i] = step;
    step *= shape[i];
  }
  const int64_t offset = spread ? kOffset : 0;
  tensor.memory.resize(static_cast<size_t>(offset + step) * aclDataTypeSize(dtype));
  if (dtype == ACL_FLOAT) {
    auto* values = static_cast<float*>(tensor.data());
    for (int64_t x = 0; x < offset + step; ++x) values[x] = 1 + 0.125F * static_cast<float>(x % 7);
  }
  tensor.handle = claim_.size > 0 ? Claimed(tensor)
                                  : aclCreateTensor(shape.data(), shape.size(), dtype, tensor.stride.data(), offset,
                                                    ACL_FORMAT_ND, shape.data(), shape.size(), tensor.data());
  return tensor.handle;
}

const aclTensor* OperatorCall::Claimed(Tensor& tensor) {
  std::vector<int64_t> shape = tensor.shape, stride(shape.size(), 0);
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    has_claim_ = has_claim_ || shape[i] == claim_.size;
    if (shape[i] == claim_.size) shape[i] = claim_.claimed;
    if (tensor.output || i + 1 == shape.size()) stride[i] = step;
    if (__builtin_mul_overflow(step, shape[i], &step)) step = std::numeric_limits<int64_t>::max();
  }
  return aclCreateTensor(shape.data(), shape.size(), tensor.dtype, stride.data(), 0, ACL_FORMAT_ND, shape.data(),
                         shape.size(), tensor.data());
}

// Returns indices that give every query the keys 0, 1, 2.
const aclTensor* OperatorCall::Indices(const char* name) {
  const aclTensor* handle = In(name, {1, kQueries, 1, kSelected}, ACL_INT32);
  Tensor& tensor = tensors_.back();
  const int64_t step = spacing_ == Spacing::kSpread ? kSpread : 1, offset = spacing_ == Spacing::kSpread ? kOffset : 0;
  for (int64_t x = 0; x < kQueries * kSelected; ++x) {
    static_cast<int32_t*>(tensor.data())[offset + x * step] = static_cast<int32_t>(x % kSelected);
  }
  return handle;
}

const aclTensor* OperatorCall::PrefixSums() {
  const aclTensor* handle = In("actualSeqQlen", {3}, ACL_INT64);
  Tensor& tensor = tensors_.back();
  const int64_t step = spacing_ == Spacing::kSpread ? kSpread : 1, offset = spacing_ == Spacing::kSpread ? kOffset : 0;
  static_cast<int64_t*>(tensor.data())[offset + step] = 1;
  static_cast<int64_t*>(tensor.data())[offset + 2 * step] = kQueries;
  return handle;
}

const aclTensor* OperatorCall::Integers(const std::string& name, const std::vector<int64_t>& shape,
                                        const std::vector<int32_t>& values) {
  const aclTensor* handle = In(name, shape, ACL_INT32);
  Tensor& tensor = tensors_.back();
  const int64_t step = spacing_ == Spacing::kSpread ? kSpread : 1, offset = spacing_ == Spacing::kSpread ? kOffset : 0;
  for (size_t x = 0; x < values.size(); ++x) {
    static_cast<int32_t*>(tensor.data())[offset + static_cast<int64_t>(x) * step] = values[x];
  }
  return handle;
}

void OperatorCall::AddForward(bool packed) {
  In("query", packed ? kPackedQueries : kQueryRows);
  In("key", packed ? kPackedKeys : kKeyRows);
  In("value", packed ? kPackedKeys : kKeyRows);
  Out("softmaxMax", packed ? kPackedStatistics : kStatistics);
  Out("softmaxSum", packed ? kPackedStatistics : kStatistics);
  Out("attentionOut", packed ? kPackedQueries : kQueryRows);
}

void OperatorCall::AddBackward(bool packed) {
  In("query", packed ? kPackedQueries : kQueryRows);
  In("keyIn", packed ? kPackedKeys : kKeyRows);
  In("value", packed ? kPackedKeys : kKeyRows);
  In("dy", packed ? kPackedQueries : kQueryRows);
  In("softmaxMax", packed ? kPackedStatistics : kStatistics);
  In("softmaxSum", packed ? kPackedStatistics : kStatistics);
  In("attentionIn", packed ? kPackedQueries : kQueryRows);
  Out("dq", packed ? kPackedQueries : kQueryRows);
  Out("dk", packed ? kPackedKeys : kKeyRows);
  Out("dv", packed ? kPackedKeys : kKeyRows);
}

void OperatorCall::AddMerge(bool packed) {
  const std::vector<int64_t> rows = packed ? kPackedQueries : std::vector<int64_t>{kQueries, 1, kHeads * kSize};
  const std::vector<int64_t>& statistics = packed ? kPackedStatistics : kStatistics;
  for (const char* which : {"prev", "cur"}) {
    In(which + std::string("AttnOut"), rows);
    In(which + std::string("SoftmaxMax"), statistics);
    In(which + std::string("SoftmaxSum"), statistics);
  }
  if (packed) PrefixSums();
  Out("attnOut", rows);
  Out("softmaxMax", statistics);
  Out("softmaxSum", statistics);
}

// Adds the parameters of sparse attention with one KV head.
void OperatorCall::AddSparse() {
  const bool backward = family_ == Family::kSparseBackward;
  const std::vector<int64_t> q = {1, kQueries, kHeads, kSize}, k = {1, kKeys, 1, kSize};
  const std::vector<int64_t> q_rope = {1, kQueries, kHeads, kRope}, k_rope = {1, kKeys, 1, kRope};
  const std::vector<int64_t> statistics = {1, 1, kQueries, kHeads};
  In("query", q);
  In("key", k);
  Indices();
  if (backward) {
    In("dOut", q);
    In("out", q);
    In("softmaxMax", statistics);
    In("softmaxSum", statistics);
  }
  In("queryRope", q_rope);
  In("keyRope", k_rope);
  if (backward) {
    Out("dQuery", q);
    Out("dKey", k);
    Out("dQueryRope", q_rope);
    Out("dKeyRope", k_rope);
  } else {
    Out("attentionOut", q);
    Out("softmaxMax", statistics);
    Out("softmaxSum", statistics);
  }
}

void OperatorCall::AddSharedKv() {
  const bool backward = family_ == Family::kSharedKvBackward;
  const std::vector<int64_t> q = {1, kQueries, kHeads, kSize}, k = {1, kKeys, 1, kSize};
  In(backward ? "query" : "q", q);
  if (backward) {
    In("dOut", q);
    In("out", q);
    In("lse", {1, 1, kQueries, kHeads});
  }
  In("oriKv", k);
  In("cmpKv", k);
  Indices("cmpSparseIndices");
  if (backward) {
    Out("dQuery", q);
    Out("dOriKv", k);
    Out("dCmpKv", k);
    Out("cmpSoftmaxL1Norm", {1, kQueries, 1, kSelected});
  } else {
    Out("attnOut", q);
    Out("softmaxLse", {1, 1, kQueries, kHeads});
  }
}

void OperatorCall::AddLoss() {
  const bool sparse = family_ == Family::kIndexerLoss;
  const std::vector<int64_t> q = {1, kQueries, kHeads, kSize}, k = {1, kKeys, 1, kSize};
  const std::vector<int64_t> weights = {1, kQueries, kHeads}, statistics = {1, 1, kQueries, kHeads};
  In("query", q);
  In("key", k);
  In("queryIndex", q);
  In("keyIndex", k);
  In("weights", weights);
  if (sparse) Indices();
  In("softmaxMax", statistics);
  In("softmaxSum", statistics);
  if (!sparse) {
    In("softmaxMaxIndex", {1, 1, kQueries});
    In("softmaxSumIndex", {1, 1, kQueries});
  }
  Out("dQueryIndex", q);
  Out("dKeyIndex", k);
  Out("dWeights", weights);
  Out("loss", {1});
}

void OperatorCall::AddMergeLse() {
  const aclTensor* const lse[] = {In("lse[0]", {kQueries}), In("lse[1]", {kQueries})};
  const aclTensor* const local_out[] = {In("localOut[0]", {kQueries, kSize}), In("localOut[1]", {kQueries, kSize})};
  keys_ = aclCreateTensorList(lse, 2);
  values_ = aclCreateTensorList(local_out, 2);
  Out("out", {kQueries, kSize});
  Out("lseOut", {kQueries});
}

void OperatorCall::AddIndexScore() {
  In("query", kPackedQueries);
  In("key", {kKeys, 1, kSize});
  Integers("actualSeqQlen", {3}, {0, 1, kQueries});
  Integers("actualSeqKlen", {3}, {0, 2, kKeys});
  Integers("startLoc", {2}, {0, 0});
  Out("score", {kHeads, kQueries, 1});
}

void OperatorCall::AddScatter() {
  In("key", kPackedQueries);
  Out("keyCacheRef", {kKeys, kSelected, kHeads, kSize});
  Integers("slotMapping", {kQueries}, {5, 0, -1, 12});
  In("value", kPackedQueries);
  Out("valueCacheRef", {kKeys, kSelected, kHeads, kSize});
}

void OperatorCall::AddGather() {
  In("keyCache", {kKeys, kSelected, kHeads, kSize});
  In("valueCache", {kKeys, kSelected, kHeads, kSize});
  Integers("blockTables", {1, kRope}, {2, 0, 5, 1, 3});
  Integers("seqLens", {1}, {kQueries});
  Out("keyRef", kPackedQueries);
  Out("valueRef", kPackedQueries);
}

void OperatorCall::AddTensors() {
  const std::vector<int64_t> q = {1, kQueries, kHeads, kSize}, k = {1, kKeys, 1, kSize};
  const std::vector<int64_t> weights = {1, kQueries, kHeads}, selected = {1, kQueries, 1, kSelected};
  switch (family_) {
    case Family::kForward: return AddForward(false);
    case Family::kForwardPacked: return AddForward(true);
    case Family::kBackward: return AddBackward(false);
    case Family::kBackwardPacked: return AddBackward(true);
    case Family::kMerge: return AddMerge(false);
    case Family::kMergePacked: return AddMerge(true);
    case Family::kSparseForward:
    case Family::kSparseBackward: return AddSparse();
    case Family::kSharedKv:
    case Family::kSharedKvBackward: return AddSharedKv();
    case Family::kIndexerLoss:
    case Family::kDenseIndexerLoss: return AddLoss();
    case Family::kMergeLse: return AddMergeLse();
    case Family::kIndexerLossValue:
      In("targetScore", {kQueries, kKeys});
      In("indexProbs", {kQueries, kKeys});
      Out("loss", {1});
      return;
    case Family::kIndexScore: return AddIndexScore();
    case Family::kScatter: return AddScatter();
    case Family::kGather: return AddGather();
    case Family::kPrompt:
      In("query", kQueryRows);
      In("key", kKeyRows);
      In("value", kKeyRows);
      Out("attentionOut", kQueryRows);
      return;
    case Family::kDecode: {
      In("query", {1, kHeads, 1, kSize});
      const aclTensor* key = In("key", kKeyRows);
      const aclTensor* value = In("value", kKeyRows);
      keys_ = aclCreateTensorList(&key, 1);
      values_ = aclCreateTensorList(&value, 1);
      Out("attentionOut", {1, kHeads, 1, kSize});
      return;
    }
    case Family::kInfer: {
      In("query", kQueryRows);
      const aclTensor* key = In("key", kKeyRows);
      const aclTensor* value = In("value", kKeyRows);
      keys_ = aclCreateTensorList(&key, 1);
      values_ = aclCreateTensorList(&value, 1);
      Out("attentionOut", kQueryRows);
      Out("softmaxLse", {1, kHeads, kQueries, 1});
      return;
    }
    case Family::kIndexer:
      In("query", q);
      In("key", k);
      In("weights", weights);
      Out("sparseIndices", selected, ACL_INT32);
      Out("sparseValues", selected);
      return;
    case Family::kIndexerBackward:
      In("query", q);
      In("key", k);
      In("dy", selected);
      Indices();
      In("weights", weights);
      Out("dq", q);
      Out("dk", k);
      Out("dweights", weights);
      return;
    case Family::kDenseIndexerLse:
      In("queryIndex", q);
      In("keyIndex", k);
      In("weight", weights);
      Out("softmaxMax", {1, 1, kQueries});
      Out("softmaxSum", {1, 1, kQueries});
      return;
  }
}

const aclTensor* OperatorCall::Handle(const char* name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.name == name) return tensor.handle;
  }
  return nullptr;
}

aclnnStatus OperatorCall::GetWorkspaceSize() {
  const auto t = [this](const char* name) { return Handle(name); };
  char* const bnsd = Text("BNSD");
  char* const bsnd = Text("BSND");
  char* const tnd = Text("TND");
  switch (family_) {
    case Family::kForward:
      return aclnnFlashAttentionScoreGetWorkspaceSize(
          t("query"), t("key"), t("value"), nullptr, nullptr, nullptr, nullptr, nullptr, kScale, 1, kNoLimit, kNoLimit,
          kHeads, bnsd, 0, 0, t("softmaxMax"), t("softmaxSum"), nullptr, t("attentionOut"), &size_, &executor_);
    case Family::kForwardPacked:
      return aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
          t("query"), t("key"), t("value"), nullptr, nullptr, nullptr, nullptr, nullptr, lengths_q_, lengths_kv_,
          kScale, 1, kNoLimit, kNoLimit, kHeads, tnd, 0, 0, t("softmaxMax"), t("softmaxSum"), nullptr,
          t("attentionOut"), &size_, &executor_);
    case Family::kBackward:
      return aclnnFlashAttentionScoreGradGetWorkspaceSize(
          t("query"), t("keyIn"), t("value"), t("dy"), nullptr, nullptr, nullptr, nullptr, t("softmaxMax"),
          t("softmaxSum"), nullptr, t("attentionIn"), nullptr, kScale, 1, kNoLimit, kNoLimit, kHeads, bnsd, 0, 0,
          t("dq"), t("dk"), t("dv"), nullptr, &size_, &executor_);
    case Family::kBackwardPacked:
      return aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
          t("query"), t("keyIn"), t("value"), t("dy"), nullptr, nullptr, nullptr, nullptr, t("softmaxMax"),
          t("softmaxSum"), nullptr, t("attentionIn"), nullptr, lengths_q_, lengths_kv_, kScale, 1, kNoLimit, kNoLimit,
          kHeads, tnd, 0, 0, t("dq"), t("dk"), t("dv"), nullptr, &size_, &executor_);
    case Family::kPrompt:
      return aclnnPromptFlashAttentionGetWorkspaceSize(t("query"), t("key"), t("value"), nullptr, nullptr, nullptr,
                                                       kHeads, kScale, kNoLimit, kNoLimit, bnsd, 0, t("attentionOut"),
                                                       &size_, &executor_);
    case Family::kDecode:
      return aclnnIncreFlashAttentionGetWorkspaceSize(t("query"), keys_, values_, nullptr, nullptr, nullptr, kHeads,
                                                      kScale, bnsd, 0, t("attentionOut"), &size_, &executor_);
    case Family::kInfer:
      return aclnnFusedInferAttentionScoreGetWorkspaceSize(
          t("query"), keys_, values_, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, nullptr, nullptr, nullptr, kHeads, kScale, kNoLimit, kNoLimit, bnsd, 0, 0, 0, 0, 0, true,
          t("attentionOut"), t("softmaxLse"), &size_, &executor_);
    case Family::kMerge:
    case Family::kMergePacked:
      return aclnnRingAttentionUpdateGetWorkspaceSize(
          t("prevAttnOut"), t("prevSoftmaxMax"), t("prevSoftmaxSum"), t("curAttnOut"), t("curSoftmaxMax"),
          t("curSoftmaxSum"), t("actualSeqQlen"), family_ == Family::kMerge ? Text("SBH") : tnd, t("attnOut"),
          t("softmaxMax"), t("softmaxSum"), &size_, &executor_);
    case Family::kSparseForward:
      return aclnnSparseFlashAttentionGetWorkspaceSize(t("query"), t("key"), nullptr, t("sparseIndices"), nullptr,
                                                       nullptr, nullptr, t("queryRope"), t("keyRope"), kScale, 1, bsnd,
                                                       bsnd, 0, 0, 0, 2, true, t("attentionOut"), t("softmaxMax"),
                                                       t("softmaxSum"), &size_, &executor_);
    case Family::kSparseBackward:
      return aclnnSparseFlashAttentionGradGetWorkspaceSize(
          t("query"), t("key"), nullptr, t("sparseIndices"), t("dOut"), t("out"), t("softmaxMax"), t("softmaxSum"),
          nullptr, nullptr, t("queryRope"), t("keyRope"), kScale, 1, bsnd, 0, 0, 0, true, t("dQuery"), t("dKey"),
          nullptr, t("dQueryRope"), t("dKeyRope"), &size_, &executor_);
    case Family::kSharedKv:
      return aclnnSparseFlashMlaGetWorkspaceSize(
          t("q"), t("oriKv"), t("cmpKv"), nullptr, t("cmpSparseIndices"), nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kScale, 1, 4, 0, 2, 0, bsnd, bsnd, 1,
          true, t("attnOut"), t("softmaxLse"), &size_, &executor_);
    case Family::kSharedKvBackward:
      return aclnnSparseFlashMlaGradGetWorkspaceSize(
          t("query"), t("dOut"), t("out"), t("lse"), t("oriKv"), t("cmpKv"), nullptr, t("cmpSparseIndices"), nullptr,
          nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, kScale, 1, 4, 0, 2,
          0, bsnd, bsnd, t("dQuery"), t("dOriKv"), t("dCmpKv"), nullptr, nullptr, t("cmpSoftmaxL1Norm"), &size_,
          &executor_);
    case Family::kIndexer:
      return aclnnLightningIndexerGetWorkspaceSize(t("query"), t("key"), t("weights"), nullptr, nullptr, nullptr, bsnd,
                                                   bsnd, kSelected, 0, 0, 0, true, t("sparseIndices"),
                                                   t("sparseValues"), &size_, &executor_);
    case Family::kIndexerBackward:
      return aclnnLightningIndexerGradGetWorkspaceSize(t("query"), t("key"), t("dy"), t("sparseIndices"), t("weights"),
                                                       nullptr, nullptr, kHeads, bsnd, 0, 0, 0, true, t("dq"), t("dk"),
                                                       t("dweights"), &size_, &executor_);
    case Family::kDenseIndexerLse:
      return aclnnDenseLightningIndexerSoftmaxLseGetWorkspaceSize(t("queryIndex"), t("keyIndex"), t("weight"), nullptr,
                                                                  nullptr, bsnd, 0, 0, 0, t("softmaxMax"),
                                                                  t("softmaxSum"), &size_, &executor_);
    case Family::kIndexerLoss:
      return aclnnSparseLightningIndexerGradKLLossGetWorkspaceSize(
          t("query"), t("key"), t("queryIndex"), t("keyIndex"), t("weights"), t("sparseIndices"), t("softmaxMax"),
          t("softmaxSum"), nullptr, nullptr, nullptr, nullptr, kScale, bsnd, 0, 0, 0, true, t("dQueryIndex"),
          t("dKeyIndex"), t("dWeights"), t("loss"), &size_, &executor_);
    case Family::kDenseIndexerLoss:
      return aclnnDenseLightningIndexerGradKLLossGetWorkspaceSize(
          t("query"), t("key"), t("queryIndex"), t("keyIndex"), t("weights"), t("softmaxMax"), t("softmaxSum"),
          t("softmaxMaxIndex"), t("softmaxSumIndex"), nullptr, nullptr, nullptr, nullptr, kScale, bsnd, 0, 0, 0,
          t("dQueryIndex"), t("dKeyIndex"), t("dWeights"), t("loss"), &size_, &executor_);
    case Family::kIndexerLossValue:
      return aclnnLightningIndexerKLLossGetWorkspaceSize(t("targetScore"), t("indexProbs"), 1e-8, "logits", t("loss"),
                                                         &size_, &executor_);
    case Family::kIndexScore:
      return aclnnMsaIndexScoreGetWorkspaceSize(t("query"), t("key"), nullptr, nullptr, nullptr, t("actualSeqQlen"),
                                                t("actualSeqKlen"), t("startLoc"), tnd, 0, 0, 1, t("score"), &size_,
                                                &executor_);
    case Family::kMergeLse:
      return aclnnAttentionUpdateGetWorkspaceSize(keys_, values_, 1, const_cast<aclTensor*>(t("out")),
                                                  const_cast<aclTensor*>(t("lseOut")), &size_, &executor_);
    case Family::kScatter:
      return aclnnScatterPaKvCacheGetWorkspaceSize(t("key"), const_cast<aclTensor*>(t("keyCacheRef")), t("slotMapping"),
                                                   t("value"), const_cast<aclTensor*>(t("valueCacheRef")), nullptr,
                                                   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, &size_,
                                                   &executor_);
    case Family::kGather:
      return aclnnGatherPaKvCacheGetWorkspaceSize(
          t("keyCache"), t("valueCache"), t("blockTables"), t("seqLens"), const_cast<aclTensor*>(t("keyRef")),
          const_cast<aclTensor*>(t("valueRef")), nullptr, Text("Norm"), false, &size_, &executor_);
  }
  return ACLNN_ERR_INNER;
}

void OperatorCall::Drop() {
  if (executor_ != nullptr) aclDestroyAclOpExecutor(executor_);
  executor_ = nullptr;
}

aclnnStatus OperatorCall::Plan() {
  Drop();
  const aclnnStatus status = GetWorkspaceSize();
  if (status != ACLNN_SUCCESS) return status;
  workspace_.resize(size_);
  return ACLNN_SUCCESS;
}

aclnnStatus OperatorCall::Start(aclrtStream stream) {
  const auto phase = [this] {
    switch (family_) {
      case Family::kForward: return aclnnFlashAttentionScore;
      case Family::kForwardPacked: return aclnnFlashAttentionVarLenScore;
      case Family::kBackward: return aclnnFlashAttentionScoreGrad;
      case Family::kBackwardPacked: return aclnnFlashAttentionUnpaddingScoreGrad;
      case Family::kPrompt: return aclnnPromptFlashAttention;
      case Family::kDecode: return aclnnIncreFlashAttention;
      case Family::kInfer: return aclnnFusedInferAttentionScore;
      case Family::kMerge:
      case Family::kMergePacked: return aclnnRingAttentionUpdate;
      case Family::kSparseForward: return aclnnSparseFlashAttention;
      case Family::kSparseBackward: return aclnnSparseFlashAttentionGrad;
      case Family::kSharedKv: return aclnnSparseFlashMla;
      case Family::kSharedKvBackward: return aclnnSparseFlashMlaGrad;
      case Family::kIndexer: return aclnnLightningIndexer;
      case Family::kIndexerBackward: return aclnnLightningIndexerGrad;
      case Family::kDenseIndexerLse: return aclnnDenseLightningIndexerSoftmaxLse;
      case Family::kIndexerLoss: return aclnnSparseLightningIndexerGradKLLoss;
      case Family::kDenseIndexerLoss: return aclnnDenseLightningIndexerGradKLLoss;
      case Family::kIndexerLossValue: return aclnnLightningIndexerKLLoss;
      case Family::kIndexScore: return aclnnMsaIndexScore;
      case Family::kMergeLse: return aclnnAttentionUpdate;
      case Family::kScatter: return aclnnScatterPaKvCache;
      case Family::kGather: return aclnnGatherPaKvCache;
    }
    throw std::out_of_range("family");
  };
  return phase()(workspace_.data(), size_, executor_, stream);
}

aclError OperatorCall::Run(aclrtStream stream) {
  if (const aclnnStatus status = Plan(); status != ACLNN_SUCCESS) return status;
  if (const aclnnStatus status = Start(stream); status != ACLNN_SUCCESS) return status;
  return aclrtSynchronizeStream(stream);
}

std::vector<std::byte> OperatorCall::Results() const {
  std::vector<std::byte> results;
  for (const Tensor& tensor : tensors_) {
    if (tensor.output) results.insert(results.end(), tensor.memory.begin(), tensor.memory.end());
  }
  return results;
}

void OperatorCall::ForgetResults() {
  for (Tensor& tensor : tensors_) {
    if (tensor.output) std::memset(tensor.data(), 0xFF, tensor.memory.size());
  }
}

}  // namespace fa::test
