#include "core/run/fork_depth.h"

#include <pthread.h>

#include <atomic>

namespace fa::core {
namespace {

constinit std::atomic<uint32_t> depth{0};

// When the library is loaded. It fails only for lack of memory, and then nothing else starts either.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint32_t ForkDepth() noexcept { return depth.load(std::memory_order_relaxed); }

}  // namespace fa::core
