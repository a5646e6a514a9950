// Implements allocation_counter.h for the C library's functions, which operator new calls. So everything that allocates
// can fail: operator new, C++ streams, the loader, pthread_create. Sanitizer builds cannot use this file, because
// sanitizers replace the allocator.
#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "support/allocation_counter.h"

// The C library's allocator, under names that remain when a program defines its own malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

constinit std::atomic<int64_t> allocations{0}, live{0};
constinit std::atomic<int64_t> first_failure{kNever}, last_failure{kNever}, failures{0};
constinit std::atomic<bool> only_one_thread{false};
constinit thread_local bool is_the_one = false;
constinit thread_local int uncounted = 0;

/// Counts an allocation, and returns whether it has to fail.
bool Fails() {
  if (uncounted > 0 || (only_one_thread.load(std::memory_order_relaxed) && !is_the_one)) return false;
  const int64_t number = allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first_failure.load(std::memory_order_relaxed) || number > last_failure.load(std::memory_order_relaxed)) {
    return false;
  }
  failures.fetch_add(1, std::memory_order_relaxed);
  errno = ENOMEM;
  return true;
}

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

namespace fa::test {

int64_t Allocations() { return allocations.load(std::memory_order_relaxed); }
int64_t LiveAllocations() { return live.load(std::memory_order_relaxed); }

FailingAllocations::FailingAllocations(int64_t first, bool all_later, bool this_thread) {
  is_the_one = this_thread;
  only_one_thread.store(this_thread);
  const int64_t number = Allocations() + first;
  failures.store(0);
  last_failure.store(all_later ? kNever : number);
  first_failure.store(number);
}
FailingAllocations::~FailingAllocations() {
  first_failure.store(kNever);
  only_one_thread.store(false);
}
int64_t FailingAllocations::failed() const { return failures.load(); }

UncountedAllocations::UncountedAllocations() { ++uncounted; }
UncountedAllocations::~UncountedAllocations() { --uncounted; }

}  // namespace fa::test
