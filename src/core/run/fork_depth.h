#ifndef FA_CORE_FORK_DEPTH_H_
#define FA_CORE_FORK_DEPTH_H_

#include <cstdint>

namespace fa::core {

/// How many forks lie between the process that loaded the library and this one. A forked child has the memory of its
/// parent but none of its threads: a lock that one of them held stays held, and oneTBB counts on workers that are gone.
[[nodiscard]] uint32_t ForkDepth() noexcept;

}  // namespace fa::core

#endif  // FA_CORE_FORK_DEPTH_H_
