#ifndef FA_BENCHMARKS_REPORT_TIMING_H_
#define FA_BENCHMARKS_REPORT_TIMING_H_

#include <benchmark/benchmark.h>

#include "peak/bracketed_rounds.h"

namespace fa::bench {

/// Sets Google Benchmark's counters for a timing: the rate of the best round, the share of quiet rounds and, if a round
/// was quiet, the fraction of the peak.
inline void Report(benchmark::State& state, const BracketedTiming& timing, double per_call, const char* unit) {
  state.counters[unit] = per_call / timing.best;
  state.counters["quiet"] = static_cast<double>(timing.quiet) / static_cast<double>(timing.rounds);
  if (timing.compared[0].fraction) state.counters["of_peak"] = *timing.compared[0].fraction;
}

}  // namespace fa::bench

#endif  // FA_BENCHMARKS_REPORT_TIMING_H_
