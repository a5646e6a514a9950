#include "core/memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>

#include "core/saturating.h"

namespace fa::core {

namespace {

int64_t AskMemoryBytes() {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return kAddressSpaceBytes;
  const int64_t units = SaturatedSum(static_cast<int64_t>(info.totalram), static_cast<int64_t>(info.totalswap));
  return std::min(SaturatedProduct(units, static_cast<int64_t>(info.mem_unit)), kAddressSpaceBytes);
}

}  // namespace

int64_t MemoryBytes() {
  // A static variable that is initialized here would have a lock of the compiler. If a child is forked while a thread
  // holds this lock, the lock is held in the child forever.
  static constinit std::atomic<int64_t> bytes{0};
  const int64_t known = bytes.load(std::memory_order_relaxed);
  if (known > 0) return known;
  const int64_t asked = AskMemoryBytes();
  bytes.store(asked, std::memory_order_relaxed);
  return asked;
}

}  // namespace fa::core
