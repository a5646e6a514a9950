#include "aclnn/attention_call.h"

#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "aclnn/descriptors.h"

namespace fa::aclnn {
namespace {

constexpr int64_t kCompressedPseRows = 1024;

std::optional<Layout> LayoutOf(std::string_view name, bool packed) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    if (name == Name(layout) && (layout == Layout::kTND) == packed) return layout;
  }
  return {};
}

Result<Mask> MaskOf(const AttentionCall& call, bool mask_given) {
  if (call.sparse_mode < 0 || call.sparse_mode > 8) {
    return Status::InvalidArgument("sparseMode=" + std::to_string(call.sparse_mode) + ", want 0..8");
  }
  if (!mask_given) return Mask::None();
  std::vector<int64_t> prefix;
  if (call.sparse_mode == 5 || call.sparse_mode == 6) {
    auto values = ValuesOf("prefix", call.prefix);
    if (!values.ok()) return values.status();
    prefix = std::move(*values);
  }
  return Mask::FromSparseMode(call.sparse_mode, call.pre_tokens, call.next_tokens, std::move(prefix),
                              /*dense_mask_given=*/true);
}

// The first elements count, and only where both arrays are given.
Status BindStarts(const AttentionCall& call, AttentionOptions& options) {
  if (options.pse_type < PseType::kSlopes) return Status::Ok();
  const auto kv_start = ValuesOf("kvStartIdx", call.kv_start_idx);
  if (!kv_start.ok()) return kv_start.status();
  const auto q_start = ValuesOf("qStartIdx", call.q_start_idx);
  if (!q_start.ok()) return q_start.status();
  if (kv_start->empty()) return Status::Ok();
  options.kv_start = kv_start->front();
  if (!q_start->empty()) options.q_start = q_start->front();
  return Status::Ok();
}

Status BindLengths(const AttentionCall& call, AttentionSettings& settings) {
  if (!call.packed) return Status::Ok();
  for (const auto& [name, array, lengths] : {std::tuple{"actualSeqQLen", call.actual_seq_q_len, &settings.cu_q},
                                             std::tuple{"actualSeqKvLen", call.actual_seq_kv_len, &settings.cu_kv}}) {
    if (array == nullptr) {
      return Status::InvalidArgument(std::string(name) + ": missing, want inclusive prefix sums (inputLayout TND)");
    }
    auto values = ValuesOf(name, array);
    if (!values.ok()) return values.status();
    *lengths = std::move(*values);
  }
  auto by_sequence = StatisticsBySequence(call.softmax_layout);
  if (!by_sequence.ok()) return by_sequence.status();
  settings.statistics_by_sequence = *by_sequence;
  return Status::Ok();
}

struct Rename {
  std::string_view from, to;
};

constexpr Rename kAttentionNames[] = {
    {"query_rope", "queryRope"}, {"dense_mask", "attenMask"},   {"atten_mask", "attenMask"},
    {"drop_mask", "dropMask"},   {"softmax_max", "softmaxMax"}, {"softmax_sum", "softmaxSum"},
    {"heads", "headNum"},        {"scale", "scaleValue"},       {"keep_prob", "keepProb"},
    {"pse_type", "pseType"},     {"q_start", "qStartIdx"},      {"kv_start", "kvStartIdx"},
    {"cu_q", "actualSeqQLen"},   {"cu_kv", "actualSeqKvLen"},   {"mask.pre", "preTokens"},
    {"mask.next", "nextTokens"}, {"mask.prefix", "prefix"},     {"sparse_mode", "sparseMode"},
    {"layout", "inputLayout"},
};
constexpr Rename kForwardNames[] = {{"key_rope", "keyRope"}, {"pse", "realShift"}, {"out", "attentionOut"}};
constexpr Rename kBackwardNames[] = {
    {"key", "keyIn"},      {"key_rope", "keyInRope"}, {"pse", "pseShift"}, {"out", "attentionIn"}, {"d_out", "dy"},
    {"dq_rope", "dqRope"}, {"dk_rope", "dkRope"},     {"dslopes", "dpse"}, {"sink", "sinkIn"},
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

// The names of the whole family, then those that one of its operators spells differently.
constexpr Rename kSparseNames[] = {
    {"query_rope", "queryRope"},
    {"key_rope", "keyRope"},
    {"query_index", "queryIndex"},
    {"key_index", "keyIndex"},
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
constexpr Rename kSparseForwardNames[] = {{"out", "attentionOut"}, {"lengths_kv", "actualSeqLengthsKv"}};
constexpr Rename kSparseBackwardNames[] = {
    {"d_out", "dOut"},       {"lengths_kv", "actualSeqLengthsKv"},
    {"dq", "dQuery"},        {"dk", "dKey"},
    {"dv", "dValue"},        {"dq_rope", "dQueryRope"},
    {"dk_rope", "dKeyRope"},
};
constexpr Rename kIndexerGradNames[] = {
    {"d_values", "dy"}, {"lengths_q", "actualSeqQLen"}, {"lengths_kv", "actualSeqKvLen"}};
constexpr Rename kIndexerLossNames[] = {
    {"dq_index", "dQueryIndex"}, {"dk_index", "dKeyIndex"}, {"dweights", "dWeights"}};

template <size_t size>
const Rename* Find(const Rename (&table)[size], std::string_view word) {
  for (const Rename& rename : table) {
    if (rename.from == word) return &rename;
  }
  return nullptr;
}

// The names of one operator alone.
const Rename* FindOwn(Names names, std::string_view word) {
  switch (names) {
    case Names::kForward: return Find(kForwardNames, word);
    case Names::kBackward: return Find(kBackwardNames, word);
    case Names::kMerge: return Find(kMergeNames, word);
    case Names::kPrompt: return Find(kPromptNames, word);
    case Names::kDecode: return Find(kDecodeNames, word);
    case Names::kSparseForward: return Find(kSparseForwardNames, word);
    case Names::kSparseBackward: return Find(kSparseBackwardNames, word);
    case Names::kIndexer: return nullptr;
    case Names::kIndexerGrad: return Find(kIndexerGradNames, word);
    case Names::kIndexerLoss: return Find(kIndexerLossNames, word);
  }
  return nullptr;
}

const Rename* Find(Names names, std::string_view word) {
  const Rename* own = FindOwn(names, word);
  if (own != nullptr || names == Names::kMerge) return own;
  return names < Names::kSparseForward ? Find(kAttentionNames, word) : Find(kSparseNames, word);
}

bool InWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The length of the argument's name at text[at]: a word, with ".pre", ".next" or ".prefix" after "mask".
size_t NameLength(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && InWord(text[end])) ++end;
  if (text.substr(at, end - at) != "mask" || end == text.size() || text[end] != '.') return end - at;
  size_t member = end + 1;
  while (member < text.size() && InWord(text[member])) ++member;
  return member - at;
}

// A word like "out" or "heads" is an argument only where something is said about it.
bool IsArgument(std::string_view text, size_t at, size_t length) {
  if (text.substr(at, length).find('_') != std::string_view::npos) return true;
  const size_t end = at + length;
  return end < text.size() && std::string_view(".=:[)").find(text[end]) != std::string_view::npos;
}

}  // namespace

Result<bool> StatisticsBySequence(const char* softmax_layout) {
  const std::string_view layout = softmax_layout == nullptr ? "" : softmax_layout;
  if (layout.empty()) return true;
  if (layout == "same_as_input") return false;
  return Status::InvalidArgument("softmaxLayout=\"" + std::string(layout) + "\", want \"\" or \"same_as_input\"");
}

Result<AttentionSettings> SettingsOf(const AttentionCall& call, bool mask_given) {
  AttentionSettings settings;
  AttentionOptions& options = settings.options;
  const std::optional<Layout> layout = LayoutOf(call.input_layout, call.packed);
  if (!layout) {
    return Status::InvalidArgument("inputLayout=\"" + std::string(call.input_layout) + "\", want " +
                                   (call.packed ? "\"TND\"" : "\"BNSD\", \"BSND\", \"BSH\" or \"SBH\""));
  }
  options.layout = *layout;
  if (call.head_num <= 0) {
    return Status::InvalidArgument("headNum=" + std::to_string(call.head_num) + ", want >= 1");
  }
  options.heads = call.head_num;
  if (call.pse_type < 0 || call.pse_type > 3) {
    return Status::InvalidArgument("pseType=" + std::to_string(call.pse_type) + ", want 0..3");
  }
  options.pse_type = static_cast<PseType>(call.pse_type);
  options.scale = static_cast<float>(call.scale_value);
  options.keep_prob = static_cast<float>(call.keep_prob);
  auto mask = MaskOf(call, mask_given);
  if (!mask.ok()) return mask.status();
  options.mask = std::move(*mask);
  if (Status status = BindStarts(call, options); !status.ok()) return status;
  if (Status status = BindLengths(call, settings); !status.ok()) return status;
  return settings;
}

Operands::Form PseForm(const AttentionCall& call, const aclTensor* pse) {
  const auto tensor = FindTensor(pse);
  if (!call.packed || call.pse_type >= 2 || tensor == nullptr) return Operands::Form::kRows;
  const bool compressed = tensor->shape.rank() == 4 && tensor->shape[2] == kCompressedPseRows;
  return compressed ? Operands::Form::kRows : Operands::Form::kFlat;
}

Status Renamed(const Status& status, Names names) {
  if (status.code() != StatusCode::kInvalidArgument) return status;
  const std::string_view text = status.message();
  std::string renamed;
  for (size_t at = 0; at < text.size();) {
    const size_t length = NameLength(text, at);
    if (length == 0) {
      renamed += text[at++];
      continue;
    }
    const std::string_view word = text.substr(at, length);
    const Rename* rename = IsArgument(text, at, length) ? Find(names, word) : nullptr;
    renamed += rename != nullptr ? rename->to : word;
    at += length;
  }
  return {status.code(), std::move(renamed)};
}

}  // namespace fa::aclnn
