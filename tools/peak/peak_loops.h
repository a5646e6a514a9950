#ifndef FA_PEAK_PEAK_LOOPS_H_
#define FA_PEAK_PEAK_LOOPS_H_

#include <cstddef>
#include <cstdint>

#include "fa/context.h"

namespace fa::bench {

/// A loop of independent multiply-adds in registers, without any other instruction.
struct PeakLoop {
  void (*run)(int64_t iterations);
  double flops_per_iteration;
  const char* unit;  ///< what executes it: "bf16 tile products"
};

// One source per processor family has these: peak_loops_<processor>.cc, else peak_loops_generic.cc. The CPU must have
// the level.

/// f32 multiply-adds with the widest vectors of a level: 512-bit or 256-bit FMA, 128-bit FMLA, or for portable on
/// x86-64 128-bit multiply and add.
[[nodiscard]] PeakLoop F32Loop(Isa isa);
/// bf16 products (tile products, VDPBF16PS, BFMMLA) where the level has them, else f32 multiply-adds.
[[nodiscard]] PeakLoop Bf16Loop(Isa isa);
/// int8 products (tile products, VPDPBUSD, SDOT, SMMLA) where the level has them, else f32 multiply-adds.
[[nodiscard]] PeakLoop Int8Loop(Isa isa);

/// Bytes that ReadLines reads per step.
inline constexpr size_t kReadStep = 256;
/// Plain loads of `bytes` bytes, a multiple of kReadStep, 64-byte aligned. Without other instructions a core issues
/// loads faster than memory answers.
void ReadLines(Isa isa, const std::byte* data, size_t bytes);

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_LOOPS_H_
