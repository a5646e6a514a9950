#ifndef FA_CORE_TSAN_H_
#define FA_CORE_TSAN_H_

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

// ThreadSanitizer's runtime exports these functions, but none of its headers declares them.
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace fa::core {

/// TsanRelease and TsanAcquire tell ThreadSanitizer that everything before TsanRelease(p) happens before everything
/// after a later TsanAcquire(p). Libraries that are built without ThreadSanitizer need this where they hand data from
/// thread to thread. In builds without ThreadSanitizer the functions do nothing.
inline void TsanRelease([[maybe_unused]] const void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(address));
#endif
}
inline void TsanAcquire([[maybe_unused]] const void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(address));
#endif
}

/// While such an object lives, ThreadSanitizer ignores what its thread reads, writes and frees.
class TsanIgnore {
 public:
#if defined(__SANITIZE_THREAD__)
  TsanIgnore() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~TsanIgnore() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  TsanIgnore() {}
  ~TsanIgnore() {}
#endif
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

}  // namespace fa::core

#endif  // FA_CORE_TSAN_H_
