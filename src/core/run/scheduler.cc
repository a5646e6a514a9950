#include "core/run/scheduler.h"

#include <tbb/scalable_allocator.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/run/fork_depth.h"

namespace fa::core {
namespace {

std::atomic<bool> given_up{false};

// oneTBB loads the library of its allocator when it first needs the allocator. If there is no memory at that time, the
// process ends (glibc 2.36, _dlerror_run). This pointer refers to the allocator, so its library is loaded together with
// libfa.
[[maybe_unused]] size_t (*const volatile loads_the_allocator)(void*) = scalable_msize;

template <typename Question>
bool Answers(const Question& question) noexcept {
  try {
    (void)question();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool SchedulerStarts() noexcept {
  // `first` is 1 + the fork depth of the process that calls this function first. A forked child of that process must
  // not use `starts`, whose initialization may be incomplete.
  static constinit std::atomic<uint32_t> first{0};
  const uint32_t process = ForkDepth() + 1;
  uint32_t asked = 0;
  if (!first.compare_exchange_strong(asked, process) && asked != process) return false;
  static const bool starts = Answers([] { return tbb::this_task_arena::max_concurrency(); });
  return starts && !SchedulerGivenUp();
}

bool SchedulerGivenUp() noexcept { return given_up.load(std::memory_order_relaxed); }

void GiveUpScheduler() noexcept { given_up.store(true, std::memory_order_relaxed); }

}  // namespace fa::core
