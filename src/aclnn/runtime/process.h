#ifndef FA_ACLNN_PROCESS_H_
#define FA_ACLNN_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fa::aclnn {

/// The same as the function of that name in the library, which an interface does not see: how many forks lie between
/// the process that loaded the library and this one. A forked child has the memory of its parent but none of its
/// threads. The number at which a thing was made tells whether its thread still exists.
[[nodiscard]] uint32_t ForkDepth() noexcept;

/// A mutex that fork waits for: no thread that is missing in the child holds it there, and the data that it guards is
/// complete. For objects that live as long as the process, and for sections that neither block nor take another such
/// mutex.
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
  ForkSafeMutex* next_ = nullptr;  // in the list of all that were ever locked
};

}  // namespace fa::aclnn

#endif  // FA_ACLNN_PROCESS_H_
