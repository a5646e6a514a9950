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

// peak_loops_<processor>.cc defines these functions for its processor family, and peak_loops_generic.cc for all other
// processors. The CPU must have the level.

/// Returns a loop of f32 multiply-adds in the level's widest vectors: 512-bit or 256-bit FMA, or 128-bit FMLA. At the
/// portable level on x86-64, the loop has 128-bit multiplies and adds.
[[nodiscard]] PeakLoop F32Loop(Isa isa);
/// Returns a loop of bf16 products (tile products, VDPBF16PS, BFMMLA), or of f32 multiply-adds if the level has none.
[[nodiscard]] PeakLoop Bf16Loop(Isa isa);
/// Returns a loop of int8 products (tile products, VPDPBUSD, SDOT, SMMLA), or of f32 multiply-adds if the level has
/// none.
[[nodiscard]] PeakLoop Int8Loop(Isa isa);

/// How many bytes one step of ReadLines reads.
inline constexpr size_t kReadStep = 256;
/// Reads `bytes` bytes by plain loads. `bytes` must be a multiple of kReadStep, and `data` must be 64-byte aligned.
/// There are no other instructions, so a core issues loads faster than memory answers.
void ReadLines(Isa isa, const std::byte* data, size_t bytes);

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_LOOPS_H_
