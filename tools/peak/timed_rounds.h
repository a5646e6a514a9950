#ifndef FA_PEAK_TIMED_ROUNDS_H_
#define FA_PEAK_TIMED_ROUNDS_H_

#include <functional>

namespace fa::bench {

/// Runs work(thread) on `threads` threads that start each round together, again and again for about `seconds` (at least
/// one round). Returns the time of the shortest round in seconds, from the first start to the last end.
[[nodiscard]] double ShortestRound(int threads, double seconds, const std::function<void(int thread)>& work);

}  // namespace fa::bench

#endif  // FA_PEAK_TIMED_ROUNDS_H_
