#ifndef FA_CORE_AFFINITY_H_
#define FA_CORE_AFFINITY_H_

#include <array>
#include <span>
#include <vector>

namespace fa::core {

/// Returns the hardware threads that the calling thread may run on, ascending. The result has at least one. Throws
/// std::bad_alloc.
[[nodiscard]] std::vector<int> AllowedCpus();

/// While such an object lives, its thread runs only on the hardware threads `cpus`. The destructor restores the
/// thread's former mask. If the system refuses, or `cpus` is empty, nothing changes. The class allocates no memory.
class BoundThread {
 public:
  explicit BoundThread(std::span<const int> cpus) noexcept;
  ~BoundThread();
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

 private:
  static constexpr int kCpus = 8192;  // the largest number of CPUs that Linux is built for on x86-64
  static constexpr int kWordBits = 64;
  using Mask = std::array<unsigned long, kCpus / kWordBits>;

  Mask before_;
  bool bound_ = false;
};

}  // namespace fa::core

#endif  // FA_CORE_AFFINITY_H_
