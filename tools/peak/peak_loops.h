#ifndef FA_PEAK_PEAK_LOOPS_H_
#define FA_PEAK_PEAK_LOOPS_H_

#include <cstdint>

namespace fa::bench {

/// A loop of independent multiply-adds in registers; nothing but arithmetic.
struct PeakLoop {
  void (*run)(int64_t iterations);
  double flops_per_iteration;
};

/// 128-bit multiply and add, 256-bit FMA, 512-bit FMA, 512-bit bf16 dot products (VDPBF16PS) and 512-bit int8 dot
/// products (VPDPBUSD). The CPU must have them.
[[nodiscard]] PeakLoop SseLoop();
[[nodiscard]] PeakLoop Avx2Loop();
[[nodiscard]] PeakLoop Avx512Loop();
[[nodiscard]] PeakLoop Bf16DotLoop();
[[nodiscard]] PeakLoop Int8DotLoop();

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_LOOPS_H_
