#include "aclnn/operations/attention_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "aclnn/runtime/descriptors.h"

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

// Only the first elements of qStartIdx and kvStartIdx are used. Without kvStartIdx, qStartIdx is not used either.
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

// Zeros at the end of the prefix sums stand for unused sequences. Each of these zeros becomes the last sum before them,
// so that unused sequences have no rows.
void FillWithLastSum(std::vector<int64_t>& sums) {
  const auto end = std::find_if(sums.rbegin(), sums.rend(), [](int64_t sum) { return sum != 0; }).base();
  if (end != sums.begin()) std::fill(end, sums.end(), end[-1]);
}

Status BindLengths(const AttentionCall& call, AttentionSettings& settings) {
  auto by_sequence = StatisticsBySequence(call);
  if (!by_sequence.ok()) return by_sequence.status();
  settings.statistics_by_sequence = call.packed && *by_sequence;
  for (const auto& [name, array, lengths] : {std::tuple{"actualSeqQLen", call.actual_seq_q_len, &settings.cu_q},
                                             std::tuple{"actualSeqKvLen", call.actual_seq_kv_len, &settings.cu_kv}}) {
    if (!call.packed && array == nullptr) continue;
    if (!call.packed) {
      return Status::InvalidArgument(std::string(name) + ": given, want none (inputLayout " + call.input_layout + ")");
    }
    if (array == nullptr) {
      return Status::InvalidArgument(std::string(name) + ": missing, want inclusive prefix sums (inputLayout TND)");
    }
    auto values = ValuesOf(name, array);
    if (!values.ok()) return values.status();
    *lengths = std::move(*values);
    FillWithLastSum(*lengths);
  }
  return Status::Ok();
}

Status CheckNotQuantised(const AttentionCall& call) {
  for (const auto& [name, scale] : call.scales) {
    if (scale != nullptr) return Status::InvalidArgument(name + std::string(": quantised tensors are not served"));
  }
  if (call.out_dtype == 0) return Status::Ok();
  return Status::InvalidArgument("outDtype=" + std::to_string(call.out_dtype) +
                                 ", want 0: quantised tensors are not served");
}

}  // namespace

std::optional<PhiloxState> DropoutOf(const aclTensor* drop_mask, double keep_prob, int64_t seed, int64_t offset) {
  if (drop_mask != nullptr || static_cast<float>(keep_prob) == 1) return {};
  return PhiloxState{.seed = static_cast<uint64_t>(seed), .offset = static_cast<uint64_t>(offset)};
}

bool IsPacked(const char* input_layout) {
  return input_layout != nullptr && std::string_view(input_layout) == Name(Layout::kTND);
}

Result<bool> StatisticsBySequence(const AttentionCall& call) {
  const std::string_view layout = call.softmax_layout == nullptr ? "" : call.softmax_layout;
  if (layout.empty()) return true;
  if (layout == "same_as_input") return false;
  return Status::InvalidArgument(call.softmax_layout_name + ("=\"" + std::string(layout)) +
                                 "\", want \"\" or \"same_as_input\"");
}

Result<AttentionSettings> SettingsOf(const AttentionCall& call, bool mask_given) {
  AttentionSettings settings;
  AttentionOptions& options = settings.options;
  const std::optional<Layout> layout = LayoutOf(call.input_layout, call.packed);
  if (!layout) {
    return Status::InvalidArgument("inputLayout=\"" + std::string(call.input_layout) + "\", want " +
                                   (call.packed     ? "\"TND\""
                                    : call.version4 ? "\"BNSD\", \"BSND\", \"BSH\", \"SBH\" or \"TND\""
                                                    : "\"BNSD\", \"BSND\", \"BSH\" or \"SBH\""));
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
  options.dropout = call.dropout;
  FA_RETURN_IF_ERROR(CheckNotQuantised(call));
  auto mask = MaskOf(call, mask_given);
  if (!mask.ok()) return mask.status();
  options.mask = std::move(*mask);
  FA_RETURN_IF_ERROR(BindStarts(call, options));
  FA_RETURN_IF_ERROR(BindLengths(call, settings));
  return settings;
}

Operands::Form PseForm(const AttentionCall& call, const aclTensor* pse) {
  const auto tensor = FindTensor(pse);
  if (!call.packed || call.pse_type >= 2 || tensor == nullptr) return Operands::Form::kRows;
  const bool compressed = tensor->shape.rank() == 4 && tensor->shape[2] == kCompressedPseRows;
  return compressed ? Operands::Form::kRows : Operands::Form::kFlat;
}

}  // namespace fa::aclnn
