#include "core/run/fork_depth.h"

#include <pthread.h>

#include <atomic>

#include "fa/status.h"

namespace fa::core {
namespace {

constinit std::atomic<uint32_t> depth{0};

// When the library is loaded. It fails only for lack of memory, and then nothing else starts either.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { depth.fetch_add(1, std::memory_order_relaxed); });

// The texts of a status that has none of its own are made with the library, not by the first who asks: in a child that
// is forked while another thread makes them, the compiler's guard of them would be held for ever.
[[maybe_unused]] const bool texts_are_made = Status::Ok().message().empty() && Status::Ok().argument().empty();

}  // namespace

uint32_t ForkDepth() noexcept { return depth.load(std::memory_order_relaxed); }

}  // namespace fa::core
