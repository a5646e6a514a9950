#include "peak/fma_peak.h"

#include <algorithm>
#include <cstdint>

#include "peak/peak_loops.h"
#include "peak/timed_rounds.h"

namespace fa::bench {
namespace {

double MeasureLoop(const PeakLoop& loop, int threads, double seconds, double round_seconds) {
  // A first run of ten thousand iterations (some 20 us) sets the rounds' length.
  constexpr int64_t kFirst = 10'000;
  constexpr double kFirstSeconds = 1e-3;
  const double first = ShortestRound(1, kFirstSeconds, [&](int) { loop.run(kFirst); });
  const auto iterations = std::max<int64_t>(kFirst, static_cast<int64_t>(kFirst * round_seconds / first));
  const double shortest = ShortestRound(threads, seconds, [&](int) { loop.run(iterations); });
  return loop.flops_per_iteration * static_cast<double>(iterations) * threads / shortest * 1e-9;
}

}  // namespace

double MeasureFmaPeakGflops(int threads, Isa isa, double seconds, double round_seconds) {
  return MeasureLoop(F32Loop(isa), threads, seconds, round_seconds);
}

double MeasurePeakGflops(int threads, Isa isa, DType dtype, double seconds, double round_seconds) {
  const PeakLoop loop = dtype == DType::kBF16 ? Bf16Loop(isa) : dtype == DType::kI8 ? Int8Loop(isa) : F32Loop(isa);
  return MeasureLoop(loop, threads, seconds, round_seconds);
}

}  // namespace fa::bench
