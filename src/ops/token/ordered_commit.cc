#include "ops/token/ordered_commit.h"

#include <cstring>
#include <limits>
#include <thread>

namespace fa::ops {
namespace {

constexpr int32_t kFinished = std::numeric_limits<int32_t>::max();

// The number of polls before a waiting thread yields. Most waits end earlier, because tokens move in step. If there are
// more threads than cores, the thread of the awaited token may need this core.
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
      // A thread stores a number in finished_[sequence] after it has seen that many tokens finish. So a thread that
      // reads the number also sees everything that these tokens have added.
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
    // Later tokens begin their checks at the stored number. If this store overwrites a greater number of another
    // thread, they only make a few more reads.
    std::atomic_ref<int64_t>(commit_.finished_[sequence_]).store(unfinished_ - first_, std::memory_order_release);
  }
  // At most as many tokens as there are workers are unfinished, so the loop is short.
  for (int64_t token = unfinished_; token < token_; ++token) {
    WaitUntil([&] { return progress(token) >= end; });
  }
}

void PhaseGate::Wait() const {
  WaitUntil([this] { return std::atomic_ref<int64_t>(*word_).load(std::memory_order_acquire) >= tasks_; });
}

}  // namespace fa::ops
