#ifndef FA_TESTS_SUPPORT_MANY_CALLERS_H_
#define FA_TESTS_SUPPORT_MANY_CALLERS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace fa::test {

constexpr int kCallers = 6;

/// For each caller, whether it saw what it expected. Each caller has its own byte, so that all may write at once.
using GoodCallers = std::vector<char>;

inline void ExpectAll(const GoodCallers& good) {
  for (size_t caller = 0; caller < good.size(); ++caller) EXPECT_TRUE(good[caller]) << "caller " << caller;
}

/// Calls `call(caller)` for every caller, each on its own thread.
template <typename Call>
void OnThreads(const Call& call) {
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) threads.emplace_back(call, caller);
  for (std::thread& thread : threads) thread.join();
}

/// Calls `call(caller)` for every caller in a parallel region of OpenMP, whose threads oneTBB does not know. Only
/// sources built with OpenMP may use this function. ThreadSanitizer does not see libgomp's barrier at the region's end,
/// so an atomic counter orders the same accesses.
template <typename Call>
void InOpenMpRegion(const Call& call) {
  std::atomic<int> returned{0};
#pragma omp parallel for num_threads(kCallers)
  for (int caller = 0; caller < kCallers; ++caller) {
    call(caller);
    returned.fetch_add(1, std::memory_order_release);
  }
  EXPECT_EQ(returned.load(std::memory_order_acquire), kCallers);
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_MANY_CALLERS_H_
