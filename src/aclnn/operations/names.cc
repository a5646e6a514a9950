#include "aclnn/operations/names.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>

#include "fa/error_text.h"

namespace fa::aclnn {
namespace {

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
    {"dropout", ""},  // the device's operators have no such parameter
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
constexpr Rename kInferNames[] = {
    {"pse", "pseShift"},
    {"out", "attentionOut"},
    {"lse", "softmaxLse"},
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
    {"antiquant_scale", "antiquantScale"},
    {"antiquant_offset", "antiquantOffset"},
    {"k_scale", "keyAntiquantScale"},
    {"k_offset", "keyAntiquantOffset"},
    {"v_scale", "valueAntiquantScale"},
    {"v_offset", "valueAntiquantOffset"},
    {"block_table", "blockTable"},
    {"block_size", "blockSize"},
    {"q_scale", "dequantScaleQuery"},
    {"q_padding", "queryPaddingSize"},
    {"kv_padding", "kvPaddingSize"},
    {"k_prefix", "keySharedPrefix"},
    {"v_prefix", "valueSharedPrefix"},
    {"length_prefix", "actualSharedPrefixLen"},
    {"k_rope", "keyRope"},
    {"sink", "learnableSink"},
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

// The names that all sparse operators share. If an operator has another name for an argument, that name is in one of
// the tables below.
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
    {"sink", "sinks"},
    {"dsink", "dSinks"},
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

constexpr Rename kIndexScoreNames[] = {
    {"k_scale", "scale"},      {"lengths_q", "actualSeqQlen"}, {"lengths_kv", "actualSeqKlen"},
    {"start_loc", "startLoc"}, {"init_blocks", "initBlocks"},  {"local_blocks", "localBlocks"}};
constexpr Rename kLossValueNames[] = {{"target", "targetScore"}, {"probabilities", "indexProbs"}};

constexpr Rename kSharedKvFamilyNames[] = {
    {"ori_kv", "oriKv"},
    {"cmp_kv", "cmpKv"},
    {"ori_indices", "oriSparseIndices"},
    {"cmp_indices", "cmpSparseIndices"},
    {"ori_topk_length", "oriTopkLength"},
    {"cmp_topk_length", "cmpTopkLength"},
    {"ori_block_table", "oriBlockTable"},
    {"cmp_block_table", "cmpBlockTable"},
    {"cu_q", "cuSeqlensQ"},
    {"cu_ori", "cuSeqlensOriKv"},
    {"cu_cmp", "cuSeqlensCmpKv"},
    {"used_q", "sequsedQ"},
    {"used_ori", "sequsedOriKv"},
    {"used_cmp", "sequsedCmpKv"},
    {"cmp_residual", "cmpResidualKv"},
    {"cmp_ratio", "cmpRatio"},
    {"ori_mask", "oriMaskMode"},
    {"cmp_mask", "cmpMaskMode"},
    {"window_left", "oriWinLeft"},
    {"window_right", "oriWinRight"},
    {"layout", "layoutQ"},
    {"sink", "sinks"},
};
constexpr Rename kSharedKvNames[] = {{"out", "attnOut"}, {"lse", "softmaxLse"}, {"scale", "softmaxScale"}};
constexpr Rename kSharedKvGradNames[] = {
    {"q", "query"},
    {"d_out", "dOut"},
    {"dq", "dQuery"},
    {"d_ori_kv", "dOriKv"},
    {"d_cmp_kv", "dCmpKv"},
    {"dsink", "dSinks"},
    {"ori_l1_norm", "oriSoftmaxL1Norm"},
    {"cmp_l1_norm", "cmpSoftmaxL1Norm"},
    {"scale", "scaleValue"},
};
constexpr Rename kSharedKvL1NormNames[] = {
    {"cmp_kv", "k"},
    {"lse", "softmaxLse"},
    {"cmp_indices", "sparseIndices"},
    {"cu_cmp", "cuSeqlensK"},
    {"used_cmp", "sequsedK"},
    {"cmp_residual", "cmpResidualK"},
    {"cmp_mask", "maskMode"},
    {"cmp_l1_norm", "softmaxL1Norm"},
    {"cmp_topk_length", "topkLength"},
    {"scale", "softmaxScale"},
};

constexpr Rename kMergeLseNames[] = {{"local_out", "localOut"}, {"lse_out", "lseOut"}};
constexpr Rename kScatterNames[] = {{"key_cache", "keyCacheRef"},
                                    {"value_cache", "valueCacheRef"},
                                    {"slot_mapping", "slotMapping"},
                                    {"form", "cacheMode"}};
constexpr Rename kGatherNames[] = {{"key", "keyRef"},
                                   {"value", "valueRef"},
                                   {"key_cache", "keyCache"},
                                   {"value_cache", "valueCache"},
                                   {"block_table", "blockTables"},
                                   {"seq_lens", "seqLens"},
                                   {"seq_offset", "seqOffset"},
                                   {"form", "cacheMode"}};

// Returns the names that only this operator has. The tables above hold names that several operators share.
std::span<const Rename> OwnNames(Names names) {
  switch (names) {
    case Names::kForward: return kForwardNames;
    case Names::kBackward: return kBackwardNames;
    case Names::kMerge: return kMergeNames;
    case Names::kPrompt: return kPromptNames;
    case Names::kDecode: return kDecodeNames;
    case Names::kInfer: return kInferNames;
    case Names::kSparseForward: return kSparseForwardNames;
    case Names::kSparseBackward: return kSparseBackwardNames;
    case Names::kIndexer: return kIndexerNames;
    case Names::kIndexerBackward: return kIndexerGradNames;
    case Names::kIndexerLoss:
    case Names::kDenseIndexerLoss: return kIndexerLossNames;
    case Names::kDenseIndexerLse: return kIndexerLseNames;
    case Names::kIndexerLossValue: return kLossValueNames;
    case Names::kIndexScore: return kIndexScoreNames;
    case Names::kSharedKv: return kSharedKvNames;
    case Names::kSharedKvBackward: return kSharedKvGradNames;
    case Names::kSharedKvL1Norm: return kSharedKvL1NormNames;
    case Names::kMergeLse: return kMergeLseNames;
    case Names::kScatter: return kScatterNames;
    case Names::kGather: return kGatherNames;
    default: return {};
  }
}

std::span<const Rename> FamilyNames(Names names) {
  switch (names) {
    case Names::kMerge:
    case Names::kMergeLse:
    case Names::kIndexerLossValue:
    case Names::kScatter:
    case Names::kGather: return {};
    case Names::kForward:
    case Names::kBackward:
    case Names::kDecode:
    case Names::kInfer:
    case Names::kPrompt: return kAttentionNames;
    case Names::kSharedKv:
    case Names::kSharedKvBackward:
    case Names::kSharedKvL1Norm: return kSharedKvFamilyNames;
    case Names::kSparseForward:
    case Names::kSparseBackward:
    case Names::kIndexer:
    case Names::kIndexerBackward:
    case Names::kIndexerLoss:
    case Names::kDenseIndexerLse:
    case Names::kDenseIndexerLoss:
    case Names::kIndexScore: return kSparseNames;
  }
  return {};
}

}  // namespace

std::string_view ParameterOf(Names names, std::string_view argument) {
  for (const std::span<const Rename> table : {OwnNames(names), FamilyNames(names)}) {
    for (const Rename& rename : table) {
      if (rename.from == argument) return rename.to;
    }
  }
  return argument;
}

namespace {

/// Returns an index such as "[2]" with its first number raised by `first`.
std::string RaisedIndex(std::string_view index, int64_t first) {
  int64_t number = 0;
  const char* const begin = index.data() + 1;
  const auto [rest, error] = std::from_chars(begin, index.data() + index.size(), number);
  if (error != std::errc()) return std::string(index);
  return "[" + std::to_string(number + first) + std::string(index.substr(static_cast<size_t>(rest - index.data())));
}

}  // namespace

Status Renamed(const Status& status, Names names, std::span<const Rename> own) {
  if (status.what().mentions().empty()) return status;
  const auto say = [&](std::string_view argument, std::string_view member, std::string_view index) {
    const auto is_own = [&](const Rename& rename) { return rename.from == argument; };
    const auto found = std::find_if(own.begin(), own.end(), is_own);
    const std::string_view parameter = found != own.end() ? found->to : ParameterOf(names, argument);
    const int64_t first = found != own.end() && member.empty() && !index.empty() ? found->first : 0;
    return std::string(parameter).append(member).append(first == 0 ? std::string(index) : RaisedIndex(index, first));
  };
  std::string text = status.what().Retold(say);
  // If `text` ends with " or ", as in "want dropMask or ", the parameter after it does not exist. Then the " or " is
  // removed.
  constexpr std::string_view kOr = " or ";
  if (text.ends_with(kOr)) text.resize(text.size() - kOr.size());
  return {status.code(), std::string_view(text)};
}

}  // namespace fa::aclnn
