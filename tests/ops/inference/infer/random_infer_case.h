#ifndef FA_TESTS_OPS_INFER_RANDOM_INFER_CASE_H_
#define FA_TESTS_OPS_INFER_RANDOM_INFER_CASE_H_

#include <cstdint>

#include "ops/inference/infer/infer_case.h"

namespace fa::test {

/// Returns a valid case that depends on the seed alone.
[[nodiscard]] InferCase RandomInferCase(uint64_t seed);

}  // namespace fa::test

#endif  // FA_TESTS_OPS_INFER_RANDOM_INFER_CASE_H_
