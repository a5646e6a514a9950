// Eight threads call every operator on shared contexts, and make and destroy contexts of their own. The test lasts
// FA_SOAK_SECONDS (default 120). In this time all threads are replaced 60 times. Each result must have the same bits as
// a call that runs alone. Resident memory is measured between these rounds of threads. After the first quarter of the
// time, memory may grow by at most 1 MiB. The exit status is 1 if bits differ, a call fails, or memory grows by more
// than 1 MiB.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "core/context/context_impl.h"
#include "fa/flash_attention.h"
#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/families.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kThreads = 8, kMostThreads = 3, kUsualSeconds = 120, kShifts = 60, kWarmShifts = kShifts / 4;
constexpr int64_t kMostGrowthBytes = 1 << 20;

/// Returns the resident memory after the C library has returned its free memory.
int64_t ResidentBytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Counts {
  std::atomic<int64_t> calls{0}, contexts{0}, wrong{0};
};

/// The calls of one thread: one per operator.
class Caller {
 public:
  explicit Caller(uint64_t seed) {
    for (const Family& family : kFamilies) {
      calls_.push_back(family.make(seed));
      alone_.push_back(OutputsOf(calls_.back().get(), ContextOf(DetectIsa(), 1)));
    }
  }
  void CallEveryOperatorOn(Context* context, Counts& counts) {
    for (size_t at = 0; at < calls_.size(); ++at) Call(at, context, counts);
  }
  void CallEveryOperator(Counts& counts) {
    for (size_t at = 0; at < calls_.size(); ++at)
      Call(at, ContextOf(DetectIsa(), 1 + static_cast<int>(at % kMostThreads)), counts);
    // The context has one thread, because oneTBB 2021.8 may lose 7 KiB when an arena with more threads is destroyed
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

/// A call so long that all threads are inside it at once. It makes a context create as many executors and workspaces as
/// the soak ever needs.
class LongCall {
 public:
  explicit LongCall(Context* context) : context_(context) {}
  [[nodiscard]] Status Run() const {
    std::vector<float> in(kElements, 0.5F), out(kElements);
    AttentionArgs args;
    args.q = args.k = args.v = TensorView{.data = in.data(), .dtype = DType::kF32, .shape = kShape, .stride = {}};
    args.out = MutableTensorView{.data = out.data(), .dtype = DType::kF32, .shape = kShape, .stride = {}};
    return FlashAttention(args, {}, context_);
  }

 private:
  static constexpr int64_t kHeads = 8, kRows = 1024, kSize = 128, kElements = kHeads * kRows * kSize;
  static inline const Dims kShape = {1, kHeads, kRows, kSize};
  Context* context_;
};

/// Makes all workspaces of a context as large as the largest of them, and touches all of their memory.
void EqualWorkspaces(Context* context) {
  Context::Impl& impl = core::ImplOf(*context);
  using Lease = Context::Impl::WorkspaceLease;
  std::vector<std::unique_ptr<Lease>> all;
  size_t largest = 0;
  for (int caller = 0; caller < kThreads; ++caller) {
    all.emplace_back(new Lease(impl.BorrowWorkspace()));  // a lease cannot be moved
    largest = std::max(largest, (**all.back()).size());
  }
  for (const auto& workspace : all) {
    if ((**workspace).Reserve(largest).ok()) std::memset((**workspace).data(), 0, (**workspace).size());
  }
}

/// Fills the pools of all contexts. A pool grows to the largest number of executors and workspaces that calls ever used
/// at once, and each workspace grows to its largest size. Without this function, memory would keep growing for hours,
/// because calls coincide by chance.
void FillPools(std::vector<Caller>& callers, Counts& counts) {
  for (int threads = 1; threads <= kMostThreads; ++threads) {
    Context* context = ContextOf(DetectIsa(), threads);
    for (Caller& caller : callers) caller.CallEveryOperatorOn(context, counts);
    const LongCall call(context);
    std::barrier start(kThreads);
    std::vector<std::thread> long_callers;
    for (int caller = 0; caller < kThreads; ++caller) {
      long_callers.emplace_back([&] {
        start.arrive_and_wait();
        counts.wrong += call.Run().ok() ? 0 : 1;
      });
    }
    for (std::thread& caller : long_callers) caller.join();
    EqualWorkspaces(context);
  }
}

/// Starts one thread per caller, which makes calls until `end`.
void WorkAShift(std::vector<Caller>& callers, Clock::time_point end, Counts& counts) {
  std::vector<std::thread> threads;
  for (Caller& caller : callers) {
    threads.emplace_back([&] {
      while (Clock::now() < end) caller.CallEveryOperator(counts);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int Soak(int seconds) {
  // The C library gets only one arena, because it does not return the free memory of other arenas.
  mallopt(M_ARENA_MAX, 1);
  std::vector<Caller> callers;
  for (int thread = 0; thread < kThreads; ++thread) callers.emplace_back(2001 + static_cast<uint64_t>(thread));
  Counts counts;
  FillPools(callers, counts);
  int64_t warm = 0, most = 0;
  const auto begin = Clock::now();
  for (int shift = 1; shift <= kShifts; ++shift) {
    WorkAShift(callers, begin + shift * std::chrono::milliseconds(int64_t{1000} * seconds) / kShifts, counts);
    const int64_t now = ResidentBytes();
    if (shift == kWarmShifts) warm = most = now;
    if (shift > kWarmShifts) most = std::max(most, now);
    std::printf("%5.0f s: %8lld calls, %7lld contexts, %lld wrong, %lld KiB\n",
                std::chrono::duration<double>(Clock::now() - begin).count(), static_cast<long long>(counts.calls),
                static_cast<long long>(counts.contexts), static_cast<long long>(counts.wrong),
                static_cast<long long>(now >> 10));
    std::fflush(stdout);
  }
  const bool flat = most - warm <= kMostGrowthBytes;
  std::printf("%lld KiB after the warm-up, at most %+lld KiB since: %s\n", static_cast<long long>(warm >> 10),
              static_cast<long long>((most - warm) >> 10), flat ? "flat" : "NOT flat");
  return counts.calls > 0 && counts.wrong == 0 && flat ? 0 : 1;
}

}  // namespace
}  // namespace fa::test

int main() { return fa::test::Soak(fa::test::FromEnvironment("FA_SOAK_SECONDS", fa::test::kUsualSeconds)); }
