#ifndef FA_TOOLS_FA_BENCH_TIMING_H_
#define FA_TOOLS_FA_BENCH_TIMING_H_

#include <functional>
#include <vector>

namespace fa::tool {

/// Seconds of one call, over all repetitions.
struct Timing {
  double best = 0;
  double median = 0;
  std::vector<double> round_best;  ///< the best of each round
};

/// What is called, what it is measured against, and who is told of the progress.
struct TimingPlan {
  double seconds = 0;  ///< of all calls together
  std::function<void()> call;
  /// The yardstick, measured before, between and after the rounds of calls, so that both see the same machine. It is
  /// told how long a call takes.
  std::function<void(double call_seconds)> between;
  std::function<void(int percent)> progress;
};

/// Calls for about `seconds`, in ten rounds with `between` around each; calls longer than a round get three rounds.
[[nodiscard]] Timing Measure(const TimingPlan& plan);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_BENCH_TIMING_H_
