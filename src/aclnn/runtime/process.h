#ifndef FA_ACLNN_PROCESS_H_
#define FA_ACLNN_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fa::aclnn {

/// Returns how many forks lie between the process that loaded the library and this process. A forked child has the
/// memory of its parent but none of its threads. If ForkDepth() was another number when an object was made, the
/// object's thread does not exist in this process.
[[nodiscard]] uint32_t ForkDepth() noexcept;

/// A mutex that is free when the process forks, because fork waits for it. So in a forked child no missing thread holds
/// the mutex, and the data that it guards is complete. Use this class for objects that live as long as the process, and
/// for sections that neither block nor take another ForkSafeMutex.
class ForkSafeMutex {
 public:
  constexpr ForkSafeMutex() = default;
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock();
  void unlock() { mutex_.unlock(); }

 private:
  friend class ForkGuard;

  std::mutex mutex_;
  std::atomic<bool> known_{false};
  ForkSafeMutex* next_ = nullptr;  // next in the list of all mutexes that were ever locked
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_PROCESS_H_
