#include "aclnn/runtime/process.h"

#include <pthread.h>

#include "fa/status.h"

namespace fa::aclnn {

/// Holds every ForkSafeMutex while the process forks.
class ForkGuard {
 public:
  static void Add(ForkSafeMutex& mutex) {
    const std::lock_guard lock(list_mutex_);
    if (mutex.known_.load(std::memory_order_relaxed)) return;
    mutex.next_ = first_;
    first_ = &mutex;
    mutex.known_.store(true, std::memory_order_release);
  }

  static void LockAll() {
    list_mutex_.lock();
    for (ForkSafeMutex* mutex = first_; mutex != nullptr; mutex = mutex->next_) mutex->mutex_.lock();
  }
  static void UnlockAll() {
    for (ForkSafeMutex* mutex = first_; mutex != nullptr; mutex = mutex->next_) mutex->mutex_.unlock();
    list_mutex_.unlock();
  }
  static void BeginChild() {
    depth_.fetch_add(1, std::memory_order_relaxed);
    UnlockAll();
  }
  [[nodiscard]] static uint32_t depth() { return depth_.load(std::memory_order_relaxed); }

 private:
  static constinit std::mutex list_mutex_;
  static constinit ForkSafeMutex* first_;
  static constinit std::atomic<uint32_t> depth_;
};

constinit std::mutex ForkGuard::list_mutex_;
constinit ForkSafeMutex* ForkGuard::first_ = nullptr;
constinit std::atomic<uint32_t> ForkGuard::depth_{0};

namespace {

// Registers the guard when the library is loaded. This fails only for lack of memory, and then the process does not
// start at all.
[[maybe_unused]] const int registered = pthread_atfork(ForkGuard::LockAll, ForkGuard::UnlockAll, ForkGuard::BeginChild);

// When the library is loaded, this makes the two empty texts that statuses share (see core/run/fork_depth.cc).
[[maybe_unused]] const bool texts_are_made = Status::Ok().message().empty() && Status::Ok().argument().empty();

}  // namespace

uint32_t ForkDepth() noexcept { return ForkGuard::depth(); }

void ForkSafeMutex::lock() {
  if (!known_.load(std::memory_order_acquire)) ForkGuard::Add(*this);
  mutex_.lock();
}

}  // namespace fa::aclnn
