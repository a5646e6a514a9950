#ifndef FA_PEAK_READ_BANDWIDTH_H_
#define FA_PEAK_READ_BANDWIDTH_H_

#include <cstddef>
#include <span>
#include <vector>

#include "peak/team.h"

namespace fa::bench {

/// More than the last-level cache of today's servers (up to 1 GiB of L3 per socket counts as cache there, and a virtual
/// machine gets a share of it), but small enough for a laptop.
inline constexpr size_t kReadBufferBytes = size_t{1} << 30;

/// The rate at which as many threads as there are read memory of the caller's at once, each its part of every block.
/// Blocks that a cache holds are read from there. What is left of a block by steps of 256 bytes per thread is not read.
class ReadRate {
 public:
  ReadRate(int threads, std::span<const std::span<const std::byte>> blocks);

  /// Bytes that are read at all.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Bytes per second of the best pass within `seconds`, at least one; 0 where nothing is read.
  [[nodiscard]] double Measure(double seconds);

 private:
  Team team_;
  std::vector<std::span<const std::byte>> parts_;  // of thread 0; the other threads' follow each
  size_t bytes_ = 0;
};

/// The rate in GB/s at which `threads` threads read memory that no cache holds.
[[nodiscard]] double MeasureReadBandwidth(int threads, size_t buffer_bytes = kReadBufferBytes, double seconds = 0.5);

}  // namespace fa::bench

#endif  // FA_PEAK_READ_BANDWIDTH_H_
