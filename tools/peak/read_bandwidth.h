#ifndef FA_PEAK_READ_BANDWIDTH_H_
#define FA_PEAK_READ_BANDWIDTH_H_

#include <cstddef>

namespace fa::bench {

/// Beyond the last-level cache of today's servers (up to 1 GiB of L3 a socket counts as cache there; a share of it is
/// what a virtual machine gets), small enough for a laptop.
inline constexpr size_t kReadBufferBytes = size_t{1} << 30;

/// Bytes a second, in GB/s, that `threads` threads read at once, each its own part of one buffer: the best round within
/// `seconds`.
[[nodiscard]] double MeasureReadBandwidth(int threads, size_t buffer_bytes = kReadBufferBytes, double seconds = 0.5);

}  // namespace fa::bench

#endif  // FA_PEAK_READ_BANDWIDTH_H_
