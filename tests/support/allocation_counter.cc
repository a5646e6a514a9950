#include "support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::atomic<int64_t> allocations{0}, live{0};
// FailingAllocations sets these variables. `allocations` counts allocations; those numbered first_failure to
// last_failure fail.
std::atomic<int64_t> first_failure{kNever}, last_failure{kNever}, failures{0};
std::atomic<bool> only_one_thread{false};
thread_local bool is_the_one = false;
thread_local int uncounted = 0;

/// Counts an allocation, and returns whether it has to fail.
bool Fails() {
  if (uncounted > 0 || (only_one_thread.load(std::memory_order_relaxed) && !is_the_one)) return false;
  const int64_t number = allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first_failure.load(std::memory_order_relaxed) || number > last_failure.load(std::memory_order_relaxed)) {
    return false;
  }
  failures.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (Fails()) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void Free(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

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

void* operator new(std::size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t bytes) { return Allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
// By default the nothrow forms of operator new call the forms above. The forms of AddressSanitizer do not, so these
// forms are replaced too.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
