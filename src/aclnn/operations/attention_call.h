#ifndef FA_ACLNN_ATTENTION_CALL_H_
#define FA_ACLNN_ATTENTION_CALL_H_

#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/options.h"
#include "fa/status.h"

namespace fa::aclnn {

/// The parameters of every version of the dense operators, except tensors. A version that lacks a parameter leaves the
/// default here, which means the same.
struct AttentionCall {
  bool packed = false;  ///< VarLen and Unpadding: layout TND
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
  const char* softmax_layout_name = "";  ///< the operator's name of the next field
  const char* softmax_layout = nullptr;  ///< null means ""
};

/// The parameters in the library's terms.
struct AttentionSettings {
  AttentionOptions options;
  std::vector<int64_t> cu_q, cu_kv;
  bool statistics_by_sequence = false;  ///< TND: blocks [N,Sq_b,8], in the order of the sequences
};

/// @param mask_given  whether there is a mask tensor; without one the device ignores sparseMode
[[nodiscard]] Result<AttentionSettings> SettingsOf(const AttentionCall& call, bool mask_given);

/// The device's two orders of [T,N,8] statistics. "" and null stand for blocks by sequence, "same_as_input" for
/// [T,N,8].
[[nodiscard]] Result<bool> StatisticsBySequence(const AttentionCall& call);

/// The form of the position bias for the library: TND's flat forms may come in any shape.
[[nodiscard]] Operands::Form PseForm(const AttentionCall& call, const aclTensor* pse);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_ATTENTION_CALL_H_
