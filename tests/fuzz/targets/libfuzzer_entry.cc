// libFuzzer calls this function. FA_FUZZ_TARGET is the name of the target's function.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fa::test::FA_FUZZ_TARGET({data, size});
  return 0;
}
