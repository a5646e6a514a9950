#include "peak/peak_rate.h"

#include <algorithm>
#include <cstdint>

namespace fa::bench {
namespace {

PeakLoop LoopFor(Isa isa, DType dtype) {
  switch (dtype) {
    case DType::kBF16: return Bf16Loop(isa);
    case DType::kI8: return Int8Loop(isa);
    default: return F32Loop(isa);
  }
}

// The constructor times kFirst iterations (about 20 us) repeatedly. The shortest time decides how many iterations a
// round has.
constexpr int64_t kFirst = 10'000;
constexpr double kFirstSeconds = 1e-3;
// A measurement has four rounds. One thread's round is long compared with the clock's resolution of about 25 ns. A
// round of several threads is also long compared with the time that their common start takes.
constexpr double kRounds = 4, kShortestRound = 20e-6, kShortestRoundTogether = 0.25e-3;

}  // namespace

PeakRate::PeakRate(int threads, Isa isa, DType dtype) : loop_(LoopFor(isa, dtype)), team_(threads) {
  seconds_per_iteration_ = Team(1).ShortestRound(kFirstSeconds, [&](int) { loop_.run(kFirst); }) / kFirst;
}

double PeakRate::Gflops(double seconds) {
  const double round = std::max(seconds / kRounds, team_.threads() == 1 ? kShortestRound : kShortestRoundTogether);
  const auto iterations = std::max<int64_t>(1, static_cast<int64_t>(round / seconds_per_iteration_));
  // No round starts after this time, and one that has started runs to its end.
  const double length = round * (kRounds - 1);
  const double shortest = team_.ShortestRound(length, [&](int) { loop_.run(iterations); });
  seconds_per_iteration_ = std::min(seconds_per_iteration_, shortest / static_cast<double>(iterations));
  return loop_.flops_per_iteration * static_cast<double>(iterations) * team_.threads() / shortest * 1e-9;
}

Reference GigaflopsOf(PeakRate& peak, double flops_per_call) {
  return {.per_call = flops_per_call * 1e-9, .rate = [&peak](double seconds) { return peak.Gflops(seconds); }};
}

}  // namespace fa::bench
