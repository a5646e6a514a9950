#include "core/memory.h"

#include <sys/sysinfo.h>

#include <algorithm>

#include "core/saturating.h"

namespace fa::core {

int64_t MemoryBytes() {
  static const int64_t bytes = [] {
    struct sysinfo info = {};
    if (sysinfo(&info) != 0) return kAddressSpaceBytes;
    const int64_t units = SaturatedSum(static_cast<int64_t>(info.totalram), static_cast<int64_t>(info.totalswap));
    return std::min(SaturatedProduct(units, static_cast<int64_t>(info.mem_unit)), kAddressSpaceBytes);
  }();
  return bytes;
}

}  // namespace fa::core
