#ifndef FA_TESTS_FUZZ_FUZZ_DRIVER_H_
#define FA_TESTS_FUZZ_FUZZ_DRIVER_H_

#include "fuzz/calls/families.h"

namespace fa::test {

/// Calls of one family, from seed FA_FUZZ_SEED (default 1) on: FA_FUZZ_CASES of them (else `usual`, a quarter under a
/// sanitizer), or as many as take FA_FUZZ_SECONDS. Stops at the first that fails and prints its seed; prints the first
/// seed and the number of calls if none fails.
///
/// Every call, on each level of this CPU:
/// - runs on one thread and on two to four, from workspaces of different contents, with its tensors where the case has
///   them and moved to buffers of their own with random strides: always the same bits, which match the reference, and
///   no byte outside the outputs changes;
/// - sometimes reads an input whose elements coincide by a stride of 0, and gives the bits of one with equal elements;
/// - with a random mistake in it, either is refused as an invalid argument and writes nothing, or writes only its
/// outputs.
void Fuzz(const Family& family, int usual);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FUZZ_DRIVER_H_
