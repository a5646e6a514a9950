#ifndef FA_TESTS_OPS_INFERENCE_DECODE_RANDOM_DECODE_CASE_H_
#define FA_TESTS_OPS_INFERENCE_DECODE_RANDOM_DECODE_CASE_H_

#include <cstdint>

#include "ops/inference/decode/decode_case.h"

namespace fa::test {

/// Returns a valid case that depends on the seed alone. It may have any type, form of keys, int8 keys, layout, lengths,
/// sizes, mask, bias, type of output, strides and address.
[[nodiscard]] DecodeCase RandomDecodeCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFERENCE_DECODE_RANDOM_DECODE_CASE_H_
