// Implements allocation_counter.h for the C library's functions, which operator new calls. So everything that allocates
// can fail: operator new, C++ streams, the loader, pthread_create. Sanitizer builds cannot use this file, because
// sanitizers replace the allocator.
#include <dlfcn.h>
#include <malloc.h>

#include <cerrno>
#include <cstddef>

#include "support/allocation_counts.inc"

// The C library's allocator, under names that remain when a program defines its own malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

void* Kept(void* block) {
  if (block != nullptr) live.fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) { return Fails() ? nullptr : Kept(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return Fails() ? nullptr : Kept(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) { return Fails() ? nullptr : Kept(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  const int before = errno;
  void* const made = memalign(alignment, bytes);
  errno = before;
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}
void free(void* block) {
  if (block != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(block);
}
void* realloc(void* block, size_t bytes) {
  if (block != nullptr && bytes == 0) {
    free(block);
    return nullptr;
  }
  if (Fails()) return nullptr;
  void* const made = __libc_realloc(block, bytes);
  return block == nullptr ? Kept(made) : made;
}
void* reallocarray(void* block, size_t count, size_t bytes) {
  size_t product = 0;
  if (!__builtin_mul_overflow(count, bytes, &product)) return realloc(block, product);
  errno = ENOMEM;
  return nullptr;
}
}
