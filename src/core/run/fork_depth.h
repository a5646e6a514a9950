#ifndef FA_CORE_FORK_DEPTH_H_
#define FA_CORE_FORK_DEPTH_H_

#include <cstdint>

namespace fa::core {

/// Returns the number of forks between the process that loaded the library and this one. A forked child has its
/// parent's memory but none of its parent's threads. A lock that one of those threads held stays held, and oneTBB
/// counts on workers that are gone.
[[nodiscard]] uint32_t ForkDepth() noexcept;

}  // namespace fa::core

#endif  // FA_CORE_FORK_DEPTH_H_
