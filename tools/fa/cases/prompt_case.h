#ifndef FA_TOOLS_FA_CASES_PROMPT_CASE_H_
#define FA_TOOLS_FA_CASES_PROMPT_CASE_H_

#include "cases/forward_case.h"
#include "fa/prompt_flash_attention.h"

namespace fa::tool {

/// Returns the arguments of a prompt call of these sizes. If the type is int8, the output is f16, and the scales are
/// such that random bytes give scores and outputs of about 1.
[[nodiscard]] PromptAttentionArgs PromptArgsOf(const ForwardCase& forward);
[[nodiscard]] PromptAttentionOptions PromptOptionsOf(const ForwardCase& forward);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_CASES_PROMPT_CASE_H_
