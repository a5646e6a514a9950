#ifndef FA_TOOLS_FA_CASES_GRAD_ARGS_H_
#define FA_TOOLS_FA_CASES_GRAD_ARGS_H_

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"

namespace fa::tool {

/// Returns the arguments of the backward of a forward call. Only the forward's inputs are set.
[[nodiscard]] AttentionGradArgs GradArgsOf(const AttentionArgs& forward);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_GRAD_ARGS_H_
