// Functions that measure the highest rates of this machine, for peers in Python. The peers call them through ctypes.

#include <cstddef>
#include <span>
#include <vector>

#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"

/// Returns the GB/s at which `threads` threads read `count` blocks of memory, in the best round within `seconds`.
/// Returns 0 if the blocks are too small (fa::bench::ReadRate).
extern "C" double fa_peer_read_rate(int threads, size_t count, const std::byte* const* data, const size_t* bytes,
                                    double seconds) {
  std::vector<std::span<const std::byte>> blocks;
  for (size_t i = 0; i < count; ++i) blocks.emplace_back(data[i], bytes[i]);
  return fa::bench::ReadRate(threads, blocks).Measure(seconds) * 1e-9;
}

/// Returns the GFLOP/s of this CPU's arithmetic unit for bf16 or f32 on `threads` threads, measured for about `seconds`
/// (fa::bench::PeakRate).
extern "C" double fa_peer_peak_rate(int threads, bool bf16, double seconds) {
  return fa::bench::PeakRate(threads, fa::DetectIsa(), bf16 ? fa::DType::kBF16 : fa::DType::kF32).Gflops(seconds);
}
