#ifndef FA_PEAK_PEAK_RATE_H_
#define FA_PEAK_PEAK_RATE_H_

#include "fa/context.h"
#include "fa/tensor.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_loops.h"
#include "peak/team.h"

namespace fa::bench {

/// The rate of the arithmetic unit with which a computation on a type is compared: products of random numbers in
/// registers, without any other instruction. The unit is that of tile products for bf16 and int8 at avx512_amx, of bf16
/// dot products for bf16 at avx512_bf16 and neon_bf16, of int8 dot products for int8 from avx512_vnni and neon_dotprod
/// on (of products of int8 matrices at neon_bf16), else of f32 multiply-adds, because inputs of that type are widened.
///
/// A unit has no rate of its own: the clock moves, and other programs take cores and hyper-threads. So a computation is
/// compared with a rate that is measured right before and after it (bracketed_rounds.h).
class PeakRate {
 public:
  /// Of `threads` threads that run at once. The CPU must have the level.
  PeakRate(int threads, Isa isa, DType dtype);

  /// "bf16 tile products".
  [[nodiscard]] const char* unit() const { return loop_.unit; }
  /// GFLOP/s of all threads together: the best of the rounds within about `seconds`.
  [[nodiscard]] double Gflops(double seconds);

 private:
  PeakLoop loop_;
  Team team_;
  double seconds_per_iteration_;
};

/// A call's FLOPs next to that rate.
[[nodiscard]] Reference GigaflopsOf(PeakRate& peak, double flops_per_call);

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_RATE_H_
