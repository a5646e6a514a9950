#ifndef FA_PEAK_TEAM_H_
#define FA_PEAK_TEAM_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace fa::bench {

/// Threads that start their work together, again and again. Between two measurements the threads sleep, so that calls
/// that are timed in between have all cores.
class Team {
 public:
  /// Starts `threads` - 1 threads. The caller is thread 0.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(spans_.size()); }
  /// Runs work(thread) on all threads in rounds, for about `seconds`, but at least one round. All threads start a round
  /// together.
  /// @return the seconds of the shortest round, from the first start to the last end
  [[nodiscard]] double ShortestRound(double seconds, const std::function<void(int thread)>& work);

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Span {
    Clock::time_point begin, end;
  };

  void Work(int thread);
  void RunRounds(int thread);
  void WaitForAll();
  [[nodiscard]] double LengthOfRound() const;

  // Thread 0 writes the next members only while the other threads sleep or wait.
  const std::function<void(int)>* work_ = nullptr;
  Clock::time_point deadline_;
  double shortest_ = 0;
  bool last_round_ = false;

  std::vector<Span> spans_;
  std::atomic<int> arrived_{0}, phase_{0};
  std::atomic<int> measurement_{0};  ///< number of the measurement; the other threads sleep until it changes
  std::atomic<bool> ended_{false};
  std::vector<std::thread> others_;
};

}  // namespace fa::bench

#endif  // FA_PEAK_TEAM_H_
