#ifndef FA_ACLNN_PROCESS_H_
#define FA_ACLNN_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fa::aclnn {

/// How many forks lie between the process that loaded the library and this one. The library has the same function, but
/// an interface does not see it. A forked child has the memory of its parent but none of its threads. If an object was
/// made at another number, its thread does not exist here.
[[nodiscard]] uint32_t ForkDepth() noexcept;

/// A mutex that fork waits for. So no thread that is missing in the child holds it there, and the data that it guards
/// is complete. It is for objects that live as long as the process, and for sections that neither block nor take
/// another such mutex.
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
  ForkSafeMutex* next_ = nullptr;  // in the list of all mutexes that were ever locked
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_PROCESS_H_
