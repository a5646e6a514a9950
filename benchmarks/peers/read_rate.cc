// The yardstick of decoding for the peers in Python: worker.py calls it through ctypes.

#include <cstddef>
#include <span>
#include <vector>

#include "peak/read_bandwidth.h"

/// GB/s at which `threads` threads read `count` blocks of memory, the best round within `seconds`; 0 where they are too
/// small (fa::bench::ReadRate).
extern "C" double fa_peer_read_rate(int threads, size_t count, const std::byte* const* data, const size_t* bytes,
                                    double seconds) {
  std::vector<std::span<const std::byte>> blocks;
  for (size_t i = 0; i < count; ++i) blocks.emplace_back(data[i], bytes[i]);
  return fa::bench::ReadRate(threads, blocks).Measure(seconds) * 1e-9;
}
