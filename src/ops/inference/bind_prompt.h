#ifndef FA_OPS_BIND_PROMPT_H_
#define FA_OPS_BIND_PROMPT_H_

#include "fa/prompt_flash_attention.h"
#include "ops/bind/attention_rows.h"
#include "ops/bind/bind_attention.h"
#include "ops/inference/output_scales.h"

namespace fa::ops {

/// A validated prompt call.
struct BoundPrompt {
  BoundAttention attention;  ///< the forward call, whose `planned` holds the tensors of the prompt call
  BoundOutputScales scales = {};
};

/// Finds every user error of the prompt call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundPrompt> BindPrompt(const PromptAttentionArgs& args, const PromptAttentionOptions& options);

/// Does what CheckRunArgs does, for the tensors of a prompt call, and checks its lengths. Called by the plan's Run.
[[nodiscard]] Status CheckPromptRunArgs(const BoundAttention& bound, const PromptAttentionArgs& args);

/// Returns the tensors of checked arguments. The tensors point into `bound`.
[[nodiscard]] ForwardRows RowsOf(const BoundAttention& bound, const PromptAttentionArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_PROMPT_H_
