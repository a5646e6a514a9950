#ifndef FA_TESTS_FUZZ_TARGETS_FUZZED_CALL_H_
#define FA_TESTS_FUZZ_TARGETS_FUZZED_CALL_H_

#include <cstddef>

#include "fuzz/calls/fuzz_call.h"
#include "fuzz/targets/targets.h"

namespace fa::test {

/// Returns one of four valid calls of an operator; the input chooses which. Later inputs get the same objects, so a
/// target must restore a call that it has changed.
[[nodiscard]] FuzzCall& FuzzedCall(size_t family, InputBytes& input);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_TARGETS_FUZZED_CALL_H_
