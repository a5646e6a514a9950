#include "core/scheduler.h"

#include <tbb/info.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstdint>

#include "core/fork_depth.h"

namespace fa::core {
namespace {

std::atomic<bool> given_up{false};

template <typename Question>
bool Answers(const Question& question) noexcept {
  try {
    (void)question();
    return true;
  } catch (...) {
    return false;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
bool NumaNodesAnswer() noexcept {
  static const bool answer = SchedulerStarts() && Answers([] { return tbb::info::numa_nodes(); });
  return answer;
}
#endif

}  // namespace

bool SchedulerStarts() noexcept {
  // The process that asks first, counted from 1. In a child of it `starts` may be incomplete.
  static constinit std::atomic<uint32_t> first{0};
  const uint32_t process = ForkDepth() + 1;
  uint32_t asked = 0;
  if (!first.compare_exchange_strong(asked, process) && asked != process) return false;
  static const bool starts = Answers([] { return tbb::this_task_arena::max_concurrency(); });
  return starts && !SchedulerGivenUp();
}

bool SchedulerGivenUp() noexcept { return given_up.load(std::memory_order_relaxed); }

void GiveUpScheduler() noexcept { given_up.store(true, std::memory_order_relaxed); }

std::vector<int> BindableNumaNodes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return {};  // oneTBB loads its binding library in a way (RTLD_DEEPBIND) that the sanitizers abort on
#else
  if (!SchedulerStarts() || !NumaNodesAnswer()) return {};
  const std::vector<tbb::numa_node_id> nodes = tbb::info::numa_nodes();
  return {nodes.begin(), nodes.end()};
#endif
}

}  // namespace fa::core
