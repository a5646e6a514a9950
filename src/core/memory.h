#ifndef FA_CORE_MEMORY_H_
#define FA_CORE_MEMORY_H_

#include <cstdint>

namespace fa::core {

/// The memory that one process can map with the page tables of every x86-64 CPU (4 levels). No larger block can be
/// allocated.
inline constexpr int64_t kAddressSpaceBytes = int64_t{1} << 47;

/// Returns the memory of this machine in bytes. The number includes swap, and is at most kAddressSpaceBytes.
[[nodiscard]] int64_t MemoryBytes();

}  // namespace fa::core

#endif  // FA_CORE_MEMORY_H_
