#include "peak/timed_rounds.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

namespace fa::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Spins, because waking a sleeping thread takes a good part of a 1 ms round; yields when there are more threads than
/// cores.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}
  void Wait() {
    const int phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    constexpr int kSpinsBeforeYield = 4096;
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins > kSpinsBeforeYield) std::this_thread::yield();
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> phase_{0};
};

struct alignas(64) Span {
  Clock::time_point begin, end;
};

double Length(const std::vector<Span>& spans) {
  const auto begin = std::min_element(spans.begin(), spans.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  const auto end = std::max_element(spans.begin(), spans.end(), [](auto& a, auto& b) { return a.end < b.end; });
  return std::chrono::duration<double>(end->end - begin->begin).count();
}

}  // namespace

double ShortestRound(int threads, double seconds, const std::function<void(int)>& work) {
  std::vector<Span> spans(static_cast<size_t>(threads));
  SpinBarrier barrier(threads);
  bool stop = false;  // written by thread 0 between two barriers
  double shortest = std::numeric_limits<double>::infinity();
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto body = [&](int thread) {
    Span& span = spans[static_cast<size_t>(thread)];
    do {
      barrier.Wait();
      span.begin = Clock::now();
      work(thread);
      span.end = Clock::now();
      barrier.Wait();
      if (thread == 0) {
        shortest = std::min(shortest, Length(spans));
        stop = Clock::now() >= deadline;
      }
      barrier.Wait();
    } while (!stop);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : others) thread.join();
  return shortest;
}

}  // namespace fa::bench
