#include "core/machine/affinity.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace fa::core {
namespace {

// These functions make the system calls directly, because the C library's functions need a mask of type cpu_set_t. The
// system call sched_getaffinity returns how many bytes of the mask it has written.
long GetMask(unsigned long* mask, size_t bytes) { return ::syscall(SYS_sched_getaffinity, 0, bytes, mask); }
bool SetMask(const unsigned long* mask, size_t bytes) { return ::syscall(SYS_sched_setaffinity, 0, bytes, mask) == 0; }

}  // namespace

std::vector<int> AllowedCpus() {
  constexpr int kWordBits = 64;
  std::vector<unsigned long> mask(16);
  long bytes = -1;
  while (bytes < 0 && mask.size() <= 1024) {  // Linux refuses a mask that is too short
    mask.resize(mask.size() * 2);
    bytes = GetMask(mask.data(), mask.size() * sizeof mask[0]);
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < bytes * 8; ++cpu) {
    if ((mask[static_cast<size_t>(cpu / kWordBits)] >> (cpu % kWordBits) & 1) != 0) cpus.push_back(cpu);
  }
  if (!cpus.empty()) return cpus;
  for (unsigned cpu = 0; cpu < std::max(1U, std::thread::hardware_concurrency()); ++cpu) {
    cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

BoundThread::BoundThread(std::span<const int> cpus) noexcept {
  if (cpus.empty()) return;
  Mask mask{};
  for (const int cpu : cpus) {
    if (cpu >= kCpus) return;
    mask[static_cast<size_t>(cpu / kWordBits)] |= 1UL << (cpu % kWordBits);
  }
  before_.fill(0);
  bound_ = GetMask(before_.data(), sizeof before_) > 0 && before_ != mask && SetMask(mask.data(), sizeof mask);
}

BoundThread::~BoundThread() {
  if (bound_) SetMask(before_.data(), sizeof before_);
}

}  // namespace fa::core
