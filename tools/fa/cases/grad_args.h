#ifndef FA_TOOLS_FA_CASES_GRAD_ARGS_H_
#define FA_TOOLS_FA_CASES_GRAD_ARGS_H_

#include "fa/flash_attention.h"
#include "fa/flash_attention_grad.h"

namespace fa::tool {

/// The backward of a forward call with its inputs only.
[[nodiscard]] AttentionGradArgs GradArgsOf(const AttentionArgs& forward);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_GRAD_ARGS_H_
