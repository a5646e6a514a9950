#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace fa::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 10, kMinRounds = 3;
// A sample much longer than the clock's resolution (some 25 ns) and its call.
constexpr double kMinSampleSeconds = 20e-6;

double SecondsOf(const std::function<void()>& call, int64_t times) {
  const Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < times; ++i) call();
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(times);
}

}  // namespace

Timing Measure(const TimingPlan& plan) {
  plan.call();  // touches memory and starts threads
  const double first = SecondsOf(plan.call, 1);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kMinSampleSeconds / std::max(first, 1e-9)));
  std::vector<double> samples, round_best;
  double spent = 0;
  for (int round = 0; round < kMinRounds || (round < kRounds && spent < plan.seconds); ++round) {
    plan.progress(100 * round / kRounds);
    plan.between(first);
    const double until = spent + plan.seconds / kRounds;
    const auto begin = static_cast<std::ptrdiff_t>(samples.size());
    do {
      samples.push_back(SecondsOf(plan.call, calls));
      spent += samples.back() * static_cast<double>(calls);
    } while (spent < until);
    round_best.push_back(*std::min_element(samples.begin() + begin, samples.end()));
  }
  plan.between(first);
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return {.best = *std::min_element(samples.begin(), samples.end()),
          .median = *middle,
          .round_best = std::move(round_best)};
}

}  // namespace fa::tool
