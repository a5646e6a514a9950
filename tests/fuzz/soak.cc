// soak [SECONDS]: eight threads call every operator on shared contexts, and make and destroy contexts of their own.
// Each result has the bits that the call has alone. Memory after the warm-up (a quarter of the time) and at the end is
// printed; the exit status is 1 if bits differ, a call fails or memory grows by more than 1 MiB.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "fuzz/call_outputs.h"
#include "fuzz/families.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 8, kUsualSeconds = 60;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Counts {
  std::atomic<int64_t> calls{0}, contexts{0}, wrong{0};
};

/// A thread's calls of every operator.
class Caller {
 public:
  explicit Caller(uint64_t seed) {
    for (const Family& family : kFamilies) {
      calls_.push_back(family.make(seed));
      alone_.push_back(OutputsOf(calls_.back().get(), ContextOf(DetectIsa(), 1)));
    }
  }
  void CallEveryOperator(Counts& counts) {
    for (size_t at = 0; at < calls_.size(); ++at)
      Call(at, ContextOf(DetectIsa(), 1 + static_cast<int>(at % 3)), counts);
    // Of one thread: oneTBB 2021.8 keeps 7 KiB of each arena that is destroyed while a thread leaves it
    // (docs/reliability.md).
    ContextOptions options;
    options.threads = 1;
    auto own = Context::Create(options);
    counts.wrong += own.ok() ? 0 : 1;
    if (own.ok()) Call(turn_++ % calls_.size(), own->get(), counts);
    ++counts.contexts;
  }

 private:
  void Call(size_t at, Context* context, Counts& counts) {
    FuzzCall& call = *calls_[at];
    call.TakeSnapshot().Forget();
    call.RestoreInputs();
    const bool right = call.Run(context, {}).ok() && alone_[at].FirstDifference(CallOutputs(&call)).empty();
    if (!right) std::fprintf(stderr, "wrong: %s\n", call.Describe().c_str());
    counts.wrong += right ? 0 : 1;
    ++counts.calls;
  }

  std::vector<std::unique_ptr<FuzzCall>> calls_;
  std::vector<CallOutputs> alone_;
  size_t turn_ = 0;
};

int Soak(int seconds) {
  std::vector<Caller> callers;
  for (int thread = 0; thread < kThreads; ++thread) callers.emplace_back(2001 + static_cast<uint64_t>(thread));
  Counts counts;
  const auto begin = Clock::now(), end = begin + std::chrono::seconds(seconds);
  std::vector<std::thread> threads;
  for (Caller& caller : callers) {
    threads.emplace_back([&] {
      do {
        caller.CallEveryOperator(counts);
      } while (Clock::now() < end);
    });
  }
  std::this_thread::sleep_until(begin + std::chrono::seconds(seconds) / 4);
  const int64_t warm = ResidentBytes();
  for (std::thread& thread : threads) thread.join();
  const int64_t growth = ResidentBytes() - warm;
  std::printf("%d s, %d threads: %lld calls, %lld contexts, %lld wrong, %lld KiB after the warm-up, %+lld KiB since\n",
              seconds, kThreads, static_cast<long long>(counts.calls), static_cast<long long>(counts.contexts),
              static_cast<long long>(counts.wrong), static_cast<long long>(warm >> 10),
              static_cast<long long>(growth >> 10));
  return counts.wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fa::test

int main(int argc, char** argv) { return fa::test::Soak(argc > 1 ? std::atoi(argv[1]) : fa::test::kUsualSeconds); }
