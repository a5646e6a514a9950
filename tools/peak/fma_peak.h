#ifndef FA_PEAK_FMA_PEAK_H_
#define FA_PEAK_FMA_PEAK_H_

#include "fa/context.h"
#include "fa/tensor.h"

namespace fa::bench {

/// The highest rate of f32 multiply-adds, in GFLOP/s (two per multiply-add), that `threads` threads running at once
/// reach with the vectors of that level: 512-bit FMA, 256-bit FMA, or 128-bit multiply and add for portable. It is the
/// best of the rounds within `seconds`, each about `round_seconds` long. The clock holds a higher rate over 1 ms than
/// over 100 ms, so a computation should be compared with rounds of its own length. The CPU must have the level.
[[nodiscard]] double MeasureFmaPeakGflops(int threads, Isa isa, double seconds = 0.1, double round_seconds = 1e-3);

/// The peak with which a computation on `dtype` is compared: tile products for bf16 and int8 at avx512_amx, bf16 dot
/// products for bf16 at avx512_bf16 and neon_bf16, int8 dot products for int8 from avx512_vnni and neon_dotprod on
/// (products of int8 matrices at neon_bf16), otherwise f32 multiply-adds, because inputs of that type are widened.
[[nodiscard]] double MeasurePeakGflops(int threads, Isa isa, DType dtype, double seconds = 0.1,
                                       double round_seconds = 1e-3);

}  // namespace fa::bench

#endif  // FA_PEAK_FMA_PEAK_H_
