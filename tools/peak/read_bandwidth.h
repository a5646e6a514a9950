#ifndef FA_PEAK_READ_BANDWIDTH_H_
#define FA_PEAK_READ_BANDWIDTH_H_

#include <cstddef>
#include <span>
#include <vector>

#include "peak/team.h"

namespace fa::bench {

/// A buffer at least as large as the last-level cache of today's servers, and small enough for a laptop. Servers have
/// up to 1 GiB of L3 per socket; a virtual machine gets a share of it.
inline constexpr size_t kReadBufferBytes = size_t{1} << 30;

/// The rate at which several threads at once read the caller's memory. Each thread reads its part of every block, from
/// a cache if the block lies there. Each part is a multiple of 256 bytes, and the rest of the block is not read.
class ReadRate {
 public:
  ReadRate(int threads, std::span<const std::span<const std::byte>> blocks);

  /// Returns the number of bytes that one pass reads.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  /// Runs passes for about `seconds`, at least one. Returns the bytes per second of the fastest pass, or 0 if there is
  /// nothing to read.
  [[nodiscard]] double Measure(double seconds);

 private:
  Team team_;
  std::vector<std::span<const std::byte>> parts_;  // thread 0's part of each block; the other threads' parts follow
  size_t bytes_ = 0;
};

/// Measures the rate in GB/s at which `threads` threads read memory that is in no cache.
[[nodiscard]] double MeasureReadBandwidth(int threads, size_t buffer_bytes = kReadBufferBytes, double seconds = 0.5);

}  // namespace fa::bench

#endif  // FA_PEAK_READ_BANDWIDTH_H_
