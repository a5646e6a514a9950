#include "peak/team.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace fa::bench {

Team::Team(int threads) : spans_(static_cast<size_t>(threads)) {
  for (int thread = 1; thread < threads; ++thread) others_.emplace_back([this, thread] { Work(thread); });
}

Team::~Team() {
  ended_ = true;
  ++measurement_;
  measurement_.notify_all();
  for (std::thread& thread : others_) thread.join();
}

double Team::ShortestRound(double seconds, const std::function<void(int)>& work) {
  work_ = &work;
  shortest_ = std::numeric_limits<double>::infinity();
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  ++measurement_;
  measurement_.notify_all();
  RunRounds(0);
  return shortest_;
}

void Team::Work(int thread) {
  for (int seen = 0;; ++seen) {
    measurement_.wait(seen);
    if (ended_) return;
    RunRounds(thread);
  }
}

void Team::RunRounds(int thread) {
  Span& span = spans_[static_cast<size_t>(thread)];
  bool last = false;
  while (!last) {
    WaitForAll();
    span.begin = Clock::now();
    (*work_)(thread);
    span.end = Clock::now();
    WaitForAll();
    if (thread == 0) {
      shortest_ = std::min(shortest_, LengthOfRound());
      last_round_ = Clock::now() >= deadline_;
    }
    WaitForAll();
    last = last_round_;
  }
  WaitForAll();  // thread 0 starts no other measurement before all threads have read last_round_
}

/// Waits by spinning, because waking a sleeping thread takes long compared with a short round. After many spins the
/// thread yields, because there may be more threads than cores.
void Team::WaitForAll() {
  const int phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads()) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  constexpr int kSpinsBeforeYield = 4096;
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
    if (spins > kSpinsBeforeYield) std::this_thread::yield();
  }
}

double Team::LengthOfRound() const {
  const auto begin = std::min_element(spans_.begin(), spans_.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  const auto end = std::max_element(spans_.begin(), spans_.end(), [](auto& a, auto& b) { return a.end < b.end; });
  return std::chrono::duration<double>(end->end - begin->begin).count();
}

}  // namespace fa::bench
