// A library for LD_PRELOAD that makes allocations of a program fail. FA_FAILING_ALLOCATION=N makes allocation N after
// the start of main fail. N+ makes allocation N and all later ones fail.
#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

using Main = int (*)(int, char**, char**);

constinit std::atomic<int64_t> allocations{0}, first{0}, last{0};
constinit std::atomic<bool> armed{false};
Main program = nullptr;

bool Fails() {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const int64_t number = allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first.load() || number > last.load()) return false;
  errno = ENOMEM;
  return true;
}

int ShortOfMemory(int argc, char** argv, char** environment) {
  if (const char* text = std::getenv("FA_FAILING_ALLOCATION")) {
    char* end = nullptr;
    first = std::strtoll(text, &end, 10);
    last = *end == '+' ? std::numeric_limits<int64_t>::max() : first.load();
    armed = true;
  }
  const int code = program(argc, argv, environment);
  armed = false;
  return code;
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) { return Fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return Fails() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* block, size_t bytes) { return Fails() ? nullptr : __libc_realloc(block, bytes); }
void* memalign(size_t alignment, size_t bytes) { return Fails() ? nullptr : __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                      void* stack_end) {
  using Start = int(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program = main;
  auto* const start = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(ShortOfMemory, argc, argv, init, fini, rtld_fini, stack_end);
}
}
