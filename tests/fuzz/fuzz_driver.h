#ifndef FA_TESTS_FUZZ_FUZZ_DRIVER_H_
#define FA_TESTS_FUZZ_FUZZ_DRIVER_H_

#include "fuzz/calls/families.h"

namespace fa::test {

/// Makes FA_FUZZ_CASES calls of one family, or calls for FA_FUZZ_SECONDS. The default is `usual` calls, or a quarter
/// under a sanitizer. The seeds begin with FA_FUZZ_SEED (default 1). Stops at the first call that fails and prints its
/// seed. If none fails, prints the first seed and the number of calls.
///
/// Every call runs on each level of this CPU:
/// - on one thread and on two to four, with different bytes in the workspace, with its tensors in place and moved to
///   buffers with random strides. The bits are always the same and match the reference, and no byte outside the outputs
///   changes;
/// - sometimes with an input whose elements are equal, both with a stride of 0 and with copies. Both give the same
///   bits;
/// - with one random mistake. The call writes nothing and returns kInvalidArgument, or it succeeds and writes only its
///   outputs.
void Fuzz(const Family& family, int usual);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FUZZ_DRIVER_H_
