#include "aclnn/operations/names.h"

#include <string>

#include "fa/error_text.h"

namespace fa::aclnn {
namespace {

struct Rename {
  std::string_view from, to;
};

constexpr Rename kAttentionNames[] = {
    {"q", "query"},
    {"k", "key"},
    {"v", "value"},
    {"q_rope", "queryRope"},
    {"dense_mask", "attenMask"},
    {"drop_mask", "dropMask"},
    {"softmax_max", "softmaxMax"},
    {"softmax_sum", "softmaxSum"},
    {"heads", "headNum"},
    {"scale", "scaleValue"},
    {"keep_prob", "keepProb"},
    {"pse_type", "pseType"},
    {"q_start", "qStartIdx"},
    {"kv_start", "kvStartIdx"},
    {"cu_q", "actualSeqQLen"},
    {"cu_kv", "actualSeqKvLen"},
    {"mask.pre", "preTokens"},
    {"mask.next", "nextTokens"},
    {"mask.prefix", "prefix"},
    {"sparse_mode", "sparseMode"},
    {"layout", "inputLayout"},
    {"dropout", "a dropout seed"},  // the device's operators have no such parameter
};
constexpr Rename kForwardNames[] = {{"k_rope", "keyRope"}, {"pse", "realShift"}, {"out", "attentionOut"}};
constexpr Rename kBackwardNames[] = {
    {"k", "keyIn"},        {"k_rope", "keyInRope"}, {"pse", "pseShift"}, {"out", "attentionIn"}, {"d_out", "dy"},
    {"dq_rope", "dqRope"}, {"dk_rope", "dkRope"},   {"dslopes", "dpse"}, {"sink", "sinkIn"},
};
constexpr Rename kMergeNames[] = {
    {"prev_out", "prevAttnOut"}, {"prev_max", "prevSoftmaxMax"}, {"prev_sum", "prevSoftmaxSum"},
    {"cur_out", "curAttnOut"},   {"cur_max", "curSoftmaxMax"},   {"cur_sum", "curSoftmaxSum"},
    {"out", "attnOut"},          {"softmax_max", "softmaxMax"},  {"softmax_sum", "softmaxSum"},
    {"layout", "inputLayout"},
};

constexpr Rename kDecodeNames[] = {
    {"dense_mask", "attenMask"},
    {"pse", "pseShift"},
    {"out", "attentionOut"},
    {"heads", "numHeads"},
    {"lengths_kv", "actualSeqLengths"},
    {"block_table", "blocktable"},
    {"antiquant_scale", "antiquantScale"},
    {"antiquant_offset", "antiquantOffset"},
    {"deq_scale1", "dequantScale1"},
    {"quant_scale1", "quantScale1"},
    {"deq_scale2", "dequantScale2"},
    {"quant_scale2", "quantScale2"},
    {"quant_offset2", "quantOffset2"},
};
constexpr Rename kPromptNames[] = {
    {"pse", "pseShift"},
    {"out", "attentionOut"},
    {"heads", "numHeads"},
    {"heads_kv", "numKeyValueHeads"},
    {"lengths_q", "actualSeqLengths"},
    {"lengths_kv", "actualSeqLengthsKv"},
    {"cu_q", "actualSeqLengths"},
    {"cu_kv", "actualSeqLengthsKv"},
    {"deq_scale1", "deqScale1"},
    {"quant_scale1", "quantScale1"},
    {"deq_scale2", "deqScale2"},
    {"quant_scale2", "quantScale2"},
    {"quant_offset2", "quantOffset2"},
};

// The names of the whole family. If a single operator has another name, one of the tables after this one has it.
constexpr Rename kSparseNames[] = {
    {"q", "query"},
    {"k", "key"},
    {"v", "value"},
    {"q_rope", "queryRope"},
    {"k_rope", "keyRope"},
    {"q_index", "queryIndex"},
    {"k_index", "keyIndex"},
    {"mask", "sparseMode"},
    {"sparse_indices", "sparseIndices"},
    {"sparse_values", "sparseValues"},
    {"block_table", "blockTable"},
    {"softmax_max", "softmaxMax"},
    {"softmax_sum", "softmaxSum"},
    {"softmax_max_index", "softmaxMaxIndex"},
    {"softmax_sum_index", "softmaxSumIndex"},
    {"lengths_q", "actualSeqLengthsQuery"},
    {"lengths_kv", "actualSeqLengthsKey"},
    {"scale", "scaleValue"},
    {"block_size", "sparseBlockSize"},
};
constexpr Rename kSparseForwardNames[] = {
    {"out", "attentionOut"}, {"lengths_kv", "actualSeqLengthsKv"}, {"layout", "layoutQuery"}};
constexpr Rename kIndexerNames[] = {{"layout", "layoutQuery"}};
constexpr Rename kSparseBackwardNames[] = {
    {"d_out", "dOut"},       {"lengths_kv", "actualSeqLengthsKv"},
    {"dq", "dQuery"},        {"dk", "dKey"},
    {"dv", "dValue"},        {"dq_rope", "dQueryRope"},
    {"dk_rope", "dKeyRope"},
};
constexpr Rename kIndexerGradNames[] = {
    {"d_values", "dy"}, {"lengths_q", "actualSeqQLen"}, {"lengths_kv", "actualSeqKvLen"}, {"layout", "inputLayout"}};
constexpr Rename kIndexerLossNames[] = {
    {"dq_index", "dQueryIndex"}, {"dk_index", "dKeyIndex"}, {"dweights", "dWeights"}};
constexpr Rename kIndexerLseNames[] = {
    {"weights", "weight"}, {"softmax_max_index", "softmaxMax"}, {"softmax_sum_index", "softmaxSum"}};

template <size_t size>
const Rename* Find(const Rename (&table)[size], std::string_view argument) {
  for (const Rename& rename : table) {
    if (rename.from == argument) return &rename;
  }
  return nullptr;
}

// The operator's own name for the argument, or null if it uses the family's.
const Rename* FindOwn(Names names, std::string_view argument) {
  switch (names) {
    case Names::kForward: return Find(kForwardNames, argument);
    case Names::kBackward: return Find(kBackwardNames, argument);
    case Names::kMerge: return Find(kMergeNames, argument);
    case Names::kPrompt: return Find(kPromptNames, argument);
    case Names::kDecode: return Find(kDecodeNames, argument);
    case Names::kSparseForward: return Find(kSparseForwardNames, argument);
    case Names::kSparseBackward: return Find(kSparseBackwardNames, argument);
    case Names::kIndexer: return Find(kIndexerNames, argument);
    case Names::kIndexerGrad: return Find(kIndexerGradNames, argument);
    case Names::kIndexerLoss: return Find(kIndexerLossNames, argument);
    case Names::kIndexerLse: return Find(kIndexerLseNames, argument);
  }
  return nullptr;
}

const Rename* Find(Names names, std::string_view argument) {
  const Rename* own = FindOwn(names, argument);
  if (own != nullptr || names == Names::kMerge) return own;
  return names < Names::kSparseForward ? Find(kAttentionNames, argument) : Find(kSparseNames, argument);
}

}  // namespace

std::string_view ParameterOf(Names names, std::string_view argument) {
  const Rename* rename = Find(names, argument);
  return rename != nullptr ? rename->to : argument;
}

Status Renamed(const Status& status, Names names) {
  if (status.what().mentions().empty()) return status;
  const auto say = [&](std::string_view argument, std::string_view member, std::string_view index) {
    return std::string(ParameterOf(names, argument)).append(member).append(index);
  };
  return {status.code(), std::string_view(status.what().Retold(say))};
}

}  // namespace fa::aclnn
