#ifndef FA_TESTS_FUZZ_FUZZ_DRIVER_H_
#define FA_TESTS_FUZZ_FUZZ_DRIVER_H_

#include "fuzz/calls/families.h"

namespace fa::test {

/// Makes calls of one family, from seed FA_FUZZ_SEED (default 1) on. It makes FA_FUZZ_CASES of them, or as many as take
/// FA_FUZZ_SECONDS. The default is `usual`, or a quarter of it under a sanitizer. Stops at the first call that fails
/// and prints its seed. If none fails, prints the first seed and the number of calls.
///
/// Every call runs on each level of this CPU:
/// - on one thread and on two to four, from workspaces of different contents, with its tensors in place and moved to
///   buffers with random strides. The bits are always the same and match the reference, and no byte outside the outputs
///   changes;
/// - sometimes with an input of equal elements, once with a stride of 0 and once with copies, which give the same bits;
/// - with a random mistake. The call is refused as an invalid argument and writes nothing, or writes only its outputs.
void Fuzz(const Family& family, int usual);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_FUZZ_DRIVER_H_
