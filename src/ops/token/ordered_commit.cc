#include "ops/token/ordered_commit.h"

#include <cstring>
#include <limits>
#include <thread>

namespace fa::ops {
namespace {

constexpr int32_t kFinished = std::numeric_limits<int32_t>::max();

// A tile takes some hundred microseconds, and tokens move in step, so most waits end within that time. After that time
// the waiting thread yields, since with more threads than cores, the thread of the token in front may not be running.
constexpr int kSpins = 256;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Calls ready() until it returns true.
template <typename Ready>
void WaitUntil(const Ready& ready) {
  for (int spins = 0; !ready(); ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

OrderedCommit::OrderedCommit(std::byte* memory, int64_t tokens, int64_t sequences)
    : finished_(reinterpret_cast<int64_t*>(memory)), progress_(reinterpret_cast<int32_t*>(finished_ + sequences)) {
  std::memset(memory, 0, Bytes(tokens, sequences));
}

OrderedCommit::Turn::Turn(const OrderedCommit& commit, int64_t sequence, int64_t first, int64_t token)
    : commit_(commit),
      sequence_(sequence),
      first_(first),
      token_(token),
      // The thread that published the number of finished tokens had seen these tokens finish. So a thread that reads
      // the number also sees all that these tokens have added.
      unfinished_(first + std::atomic_ref<int64_t>(commit.finished_[sequence]).load(std::memory_order_acquire)) {}

OrderedCommit::Turn::~Turn() { Store(token_, kFinished); }

void OrderedCommit::Turn::Store(int64_t token, int32_t progress) const {
  std::atomic_ref<int32_t>(commit_.progress_[token]).store(progress, std::memory_order_release);
}

void OrderedCommit::Turn::WaitFor(int32_t end) {
  const auto progress = [&](int64_t token) {
    return std::atomic_ref<int32_t>(commit_.progress_[token]).load(std::memory_order_acquire);
  };
  const int64_t known = unfinished_;
  while (unfinished_ < token_ && progress(unfinished_) == kFinished) ++unfinished_;
  if (unfinished_ > known) {
    // The stored number tells later tokens where to begin. It may overwrite a greater number from another thread, which
    // costs later tokens a few reads.
    std::atomic_ref<int64_t>(commit_.finished_[sequence_]).store(unfinished_ - first_, std::memory_order_release);
  }
  // The loop visits at most as many tokens as there are workers.
  for (int64_t token = unfinished_; token < token_; ++token) {
    WaitUntil([&] { return progress(token) >= end; });
  }
}

void PhaseGate::Wait() const {
  WaitUntil([this] { return std::atomic_ref<int64_t>(*word_).load(std::memory_order_acquire) >= tasks_; });
}

}  // namespace fa::ops
