#ifndef FA_PEAK_READ_BANDWIDTH_H_
#define FA_PEAK_READ_BANDWIDTH_H_

#include <cstddef>
#include <memory>
#include <span>

namespace fa::bench {

/// More than the last-level cache of today's servers (up to 1 GiB of L3 per socket counts as cache there, and a virtual
/// machine gets a share of it), but small enough for a laptop.
inline constexpr size_t kReadBufferBytes = size_t{1} << 30;

/// Memory to measure the read rate with, again and again: `threads` threads read at once, each its own part.
class ReadBuffer {
 public:
  explicit ReadBuffer(int threads, size_t bytes = kReadBufferBytes);
  ~ReadBuffer();
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  /// The read rate in GB/s: bytes per second of the best round within `seconds`.
  [[nodiscard]] double Measure(double seconds) const;

 private:
  class Pages;
  int threads_;
  size_t part_;  // bytes of one thread
  std::unique_ptr<const Pages> pages_;
};

/// The same rate over memory of the caller's: `threads` threads read at once, each its part of every block. Blocks that
/// a cache holds are read from there. What is left of a block by steps of 256 bytes per thread is not read; 0 where
/// nothing is.
[[nodiscard]] double MeasureReadRate(int threads, std::span<const std::span<const std::byte>> blocks, double seconds);

/// The rate of one measurement with a buffer of its own.
[[nodiscard]] double MeasureReadBandwidth(int threads, size_t buffer_bytes = kReadBufferBytes, double seconds = 0.5);

}  // namespace fa::bench

#endif  // FA_PEAK_READ_BANDWIDTH_H_
