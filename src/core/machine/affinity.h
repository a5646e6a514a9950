#ifndef FA_CORE_AFFINITY_H_
#define FA_CORE_AFFINITY_H_

#include <array>
#include <span>
#include <vector>

namespace fa::core {

/// The hardware threads that the calling thread may run on, ascending. There is at least one. Throws std::bad_alloc.
[[nodiscard]] std::vector<int> AllowedCpus();

/// While such an object lives, its thread runs on the given hardware threads only. Then the thread's former mask
/// returns. If the system refuses, or no hardware threads are given, nothing changes. It allocates nothing.
class BoundThread {
 public:
  explicit BoundThread(std::span<const int> cpus) noexcept;
  ~BoundThread();
  BoundThread(const BoundThread&) = delete;
  BoundThread& operator=(const BoundThread&) = delete;

 private:
  static constexpr int kCpus = 8192;  // the most that Linux is built for on x86-64
  static constexpr int kWordBits = 64;
  using Mask = std::array<unsigned long, kCpus / kWordBits>;

  Mask before_;
  bool bound_ = false;
};

}  // namespace fa::core

#endif  // FA_CORE_AFFINITY_H_
