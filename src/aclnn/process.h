#ifndef FA_ACLNN_PROCESS_H_
#define FA_ACLNN_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fa::aclnn {

/// As the library's own of that name, which a face does not see: how many forks lie between the process that loaded the
/// library and this one. A forked child has the memory of its parent but none of its threads: what only one of those
/// could finish is known by the number it was made under.
[[nodiscard]] uint32_t ForkDepth() noexcept;

/// A mutex that fork waits for, so that no thread that is missing in the child holds it there, and what it guards is
/// whole. For objects that live as long as the process and sections that neither block nor take another one of these.
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
