#ifndef FA_TESTS_OPS_INFERENCE_PROMPT_RANDOM_PROMPT_CASE_H_
#define FA_TESTS_OPS_INFERENCE_PROMPT_RANDOM_PROMPT_CASE_H_

#include <cstdint>

#include "ops/inference/prompt/prompt_case.h"

namespace fa::test {

/// Returns a valid case that depends on the arguments alone. It may have any type, layout, lengths, sizes, masks, bias,
/// scales, strides and address.
[[nodiscard]] PromptCase RandomPromptCase(uint64_t seed, bool int8_inputs);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFERENCE_PROMPT_RANDOM_PROMPT_CASE_H_
