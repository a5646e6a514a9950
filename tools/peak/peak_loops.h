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
  const char* unit;  ///< the unit that executes the loop: "bf16 tile products"
};

// Each processor family defines these functions in peak_loops_<processor>.cc, and all other processors in
// peak_loops_generic.cc. The CPU must have the level.

/// Returns a loop of f32 multiply-adds with the widest vectors of a level: 512-bit or 256-bit FMA, or 128-bit FMLA. For
/// portable on x86-64 the loop has 128-bit multiplies and adds.
[[nodiscard]] PeakLoop F32Loop(Isa isa);
/// Returns a loop of bf16 products (tile products, VDPBF16PS, BFMMLA) if the level has them, else of f32 multiply-adds.
[[nodiscard]] PeakLoop Bf16Loop(Isa isa);
/// Returns a loop of int8 products (tile products, VPDPBUSD, SDOT, SMMLA) if the level has them, else of f32
/// multiply-adds.
[[nodiscard]] PeakLoop Int8Loop(Isa isa);

/// The number of bytes that ReadLines reads per step.
inline constexpr size_t kReadStep = 256;
/// Reads `bytes` bytes by plain loads. `bytes` must be a multiple of kReadStep, and `data` must be 64-byte aligned.
/// Since there are no other instructions, a core issues loads faster than memory answers.
void ReadLines(Isa isa, const std::byte* data, size_t bytes);

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_LOOPS_H_
