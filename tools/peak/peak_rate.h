#ifndef FA_PEAK_PEAK_RATE_H_
#define FA_PEAK_PEAK_RATE_H_

#include "fa/context.h"
#include "fa/tensor.h"
#include "peak/bracketed_rounds.h"
#include "peak/peak_loops.h"
#include "peak/team.h"

namespace fa::bench {

/// The rate of the arithmetic unit with which computations on a type are compared. The unit multiplies random numbers
/// in registers, without any other instruction. The products are
/// - tile products for bf16 and int8 at avx512_amx,
/// - bf16 dot products for bf16 at avx512_bf16 (products of bf16 matrices at neon_bf16),
/// - int8 dot products for int8 at avx512_vnni, neon_dotprod and above (products of int8 matrices at neon_bf16),
/// - f32 multiply-adds in all other cases, because the inputs are then widened to f32.
///
/// A unit has no fixed rate, because the clock changes, and other programs take cores and hyper-threads. So a
/// computation is compared with a rate that is measured right before and after it (bracketed_rounds.h).
class PeakRate {
 public:
  /// Prepares for measuring `threads` threads that run at once. The CPU must have the level.
  PeakRate(int threads, Isa isa, DType dtype);

  /// Returns the name of the arithmetic unit, such as "bf16 tile products".
  [[nodiscard]] const char* unit() const { return loop_.unit; }
  /// Returns the GFLOP/s of all threads together in the best of the rounds, which take about `seconds`.
  [[nodiscard]] double Gflops(double seconds);

 private:
  PeakLoop loop_;
  Team team_;
  double seconds_per_iteration_;
};

/// Returns a reference that compares the FLOPs of a call with the peak rate.
[[nodiscard]] Reference GigaflopsOf(PeakRate& peak, double flops_per_call);

}  // namespace fa::bench

#endif  // FA_PEAK_PEAK_RATE_H_
