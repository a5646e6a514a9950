#include "fuzz/targets/targets.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace fa::test {

void Require(bool holds, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "not held: %s\n", text.c_str());
  std::abort();
}

int64_t InputBytes::Number() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  switch (Below(8)) {
    case 0: return Take<int64_t>();
    case 1: return Take<int32_t>();
    case 2: return kMost - Take<uint8_t>();
    case 3: return kLeast + Take<uint8_t>();
    case 4: return int64_t{1} << Below(63);
    default: return Take<int8_t>();
  }
}

}  // namespace fa::test
