/// The checked copy functions that published programs for the device use, for C and C++. If a later include folder has
/// another securec.h, such as that of the device's software, this header includes that file instead.
#if defined(__has_include_next) && __has_include_next(<securec.h>)
#pragma GCC system_header  // keeps -Wpedantic from warning about #include_next
#include_next <securec.h>
#elif !defined(FA_SECUREC_H_)
#define FA_SECUREC_H_

#include <errno.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int errno_t;
#define EOK 0

/// Copies `count` bytes. @return EINVAL for a null pointer, ERANGE if `count` exceeds the destination; then nothing is
/// copied
static inline errno_t memcpy_s(void* dest, size_t destMax, const void* src, size_t count) {
  if (dest == NULL || src == NULL) return EINVAL;
  if (count > destMax) return ERANGE;
  memmove(dest, src, count);
  return EOK;
}

/// Copies a string with its final zero. @return the codes of memcpy_s
static inline errno_t strcpy_s(char* strDest, size_t destMax, const char* strSrc) {
  return memcpy_s(strDest, destMax, strSrc, strSrc == NULL ? 0 : strlen(strSrc) + 1);
}

/// Fills `count` bytes. @return EINVAL for a null pointer, ERANGE if `count` exceeds the destination; then nothing is
/// filled
static inline errno_t memset_s(void* dest, size_t destMax, int c, size_t count) {
  if (dest == NULL) return EINVAL;
  if (count > destMax) return ERANGE;
  memset(dest, c, count);
  return EOK;
}

#ifdef __cplusplus
}
#endif

#endif
