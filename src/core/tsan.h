#ifndef FA_CORE_TSAN_H_
#define FA_CORE_TSAN_H_

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace fa::core {

/// What happens before TsanRelease(p) happens before what follows a later TsanAcquire(p). Tells ThreadSanitizer of
/// the hand-overs inside libraries that are not built with it; nothing in other builds.
inline void TsanRelease([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(address);
#endif
}
inline void TsanAcquire([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(address);
#endif
}

}  // namespace fa::core

#endif  // FA_CORE_TSAN_H_
