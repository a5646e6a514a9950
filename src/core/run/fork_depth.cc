#include "core/run/fork_depth.h"

#include <pthread.h>

#include <atomic>

#include "fa/status.h"

namespace fa::core {
namespace {

constinit std::atomic<uint32_t> depth{0};

// Registers the handler when the library is loaded. This fails only if there is no memory, and then the program cannot
// start at all.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });

// When the library is loaded, this makes the two empty texts that statuses without a text share. If the first caller
// made the texts, a child that is forked meanwhile would keep the compiler's lock forever.
[[maybe_unused]] const bool texts_are_made = Status::Ok().message().empty() && Status::Ok().argument().empty();

}  // namespace

uint32_t ForkDepth() noexcept { return depth.load(std::memory_order_relaxed); }

}  // namespace fa::core
