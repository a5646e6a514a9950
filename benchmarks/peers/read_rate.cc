// Rates with which the calls of the peers in Python are compared. The peers call these functions through ctypes.

#include <cstddef>
#include <span>
#include <vector>

#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"

/// GB/s at which `threads` threads read `count` blocks of memory, the best round within `seconds`; 0 if the blocks are
/// too small (fa::bench::ReadRate).
extern "C" double fa_peer_read_rate(int threads, size_t count, const std::byte* const* data, const size_t* bytes,
                                    double seconds) {
  std::vector<std::span<const std::byte>> blocks;
  for (size_t i = 0; i < count; ++i) blocks.emplace_back(data[i], bytes[i]);
  return fa::bench::ReadRate(threads, blocks).Measure(seconds) * 1e-9;
}

/// GFLOP/s of this CPU's unit for bf16 or f32 on `threads` threads, within about `seconds` (fa::bench::PeakRate).
extern "C" double fa_peer_peak_rate(int threads, bool bf16, double seconds) {
  return fa::bench::PeakRate(threads, fa::DetectIsa(), bf16 ? fa::DType::kBF16 : fa::DType::kF32).Gflops(seconds);
}
