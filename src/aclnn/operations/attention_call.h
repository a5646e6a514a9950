#ifndef FA_ACLNN_ATTENTION_CALL_H_
#define FA_ACLNN_ATTENTION_CALL_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/mask.h"
#include "fa/options.h"
#include "fa/status.h"

namespace fa::aclnn {

/// The parameters of every version of the dense operators, except tensors. If a version lacks a parameter, its member
/// keeps the default.
struct AttentionCall {
  bool packed = false;  ///< true for the VarLen and Unpadding operators, whose layout is TND
  const aclIntArray* prefix = nullptr;
  const aclIntArray* actual_seq_q_len = nullptr;
  const aclIntArray* actual_seq_kv_len = nullptr;
  const aclIntArray* q_start_idx = nullptr;
  const aclIntArray* kv_start_idx = nullptr;
  double scale_value = 1, keep_prob = 1;
  int64_t pre_tokens = 0, next_tokens = 0, head_num = 0;
  const char* input_layout = nullptr;
  int64_t sparse_mode = 0;
  int64_t pse_type = 1;
  const char* softmax_layout_name = "";  ///< the operator's name of the parameter `softmax_layout`
  const char* softmax_layout = nullptr;  ///< the operator's softmax layout; null means ""

  // The members below belong to FlashAttentionScoreV4 and its gradient, each of which serves every layout.
  bool version4 = false;
  /// Scales of quantised tensors, which the library refuses.
  std::vector<std::pair<const char*, const aclTensor*>> scales = {};
  int64_t out_dtype = 0;
  std::optional<PhiloxState> dropout = {};  ///< set if keepProb is below 1 and no dropMask is given
};

/// Returns the state of the generator that draws dropout's bits in version 4. Returns nothing if dropMask holds the
/// bits or keepProb is 1.
[[nodiscard]] std::optional<PhiloxState> DropoutOf(const aclTensor* drop_mask, double keep_prob, int64_t seed,
                                                   int64_t offset);

/// Returns whether inputLayout names the layout of packed sequences.
[[nodiscard]] bool IsPacked(const char* input_layout);

/// The parameters of AttentionCall in the library's terms.
struct AttentionSettings {
  AttentionOptions options;
  std::vector<int64_t> cu_q, cu_kv;
  bool statistics_by_sequence = false;  ///< in TND: whether statistics are one block [N,Sq_b,8] per sequence
};

/// Returns the call's parameters in the library's terms.
/// @param mask_given  whether there is a mask tensor; without a mask tensor the device ignores sparseMode
[[nodiscard]] Result<AttentionSettings> SettingsOf(const AttentionCall& call, bool mask_given);

/// Returns true if softmax_layout is "" or null: statistics declared [T,N,8] are then one block [N,Sq_b,8] per
/// sequence. The layout "same_as_input" means the order [T,N,8].
[[nodiscard]] Result<bool> StatisticsBySequence(const AttentionCall& call);

/// Returns the form in which the library gets the position bias. In TND, a bias that is not compressed is passed as one
/// dimension, whatever its shape is.
[[nodiscard]] Operands::Form PseForm(const AttentionCall& call, const aclTensor* pse);

/// Returns the number that preTokens or nextTokens of an operator for inference means. For "no bound" the device's
/// documentation has 2147483647, but its code has 214748647. So every number >= 214748647 means "no bound".
[[nodiscard]] constexpr int64_t BoundOf(int64_t tokens) { return tokens >= 214748647 ? Mask::kUnlimited : tokens; }

}  // namespace fa::aclnn

#endif  // FA_ACLNN_ATTENTION_CALL_H_
