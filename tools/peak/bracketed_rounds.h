#ifndef FA_PEAK_BRACKETED_ROUNDS_H_
#define FA_PEAK_BRACKETED_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "peak/foreign_load.h"

/// Timing of calls next to what the machine can do at that moment.
///
/// A machine whose cores others use too, or whose clock moves, has no peak that holds for a whole run. So calls are
/// timed in short rounds, and a reference (the rate of the arithmetic unit, or of reading memory) is measured right
/// before and right after each. A round whose two references differ, or are far below the fastest of all rounds, is
/// busy: it says nothing of the call. So is a round in which the call beats both references, because then they were
/// disturbed and the call was not. A fraction is that of a quiet round and of its own references: it is never above 1.
namespace fa::bench {

/// What a call is compared with.
struct Reference {
  double per_call = 0;                         ///< what a call computes or reads
  std::function<double(double seconds)> rate;  ///< measures for about so long; per second
  double agreement = 0.03;                     ///< by which the rates around a quiet round may differ
};

/// Of a reference's rates.
struct Compared {
  double rate = 0;                      ///< the higher one around the round of the best time
  std::optional<double> fraction = {};  ///< of that rate, at most 1; nothing without a quiet round
};

struct BracketedTiming {
  double best = 0, median = 0;      ///< seconds per call: of the quiet rounds, or of all where none is quiet
  std::optional<double> busy = {};  ///< the median of the others, where both are
  std::vector<Compared> compared;
  int64_t rounds = 0, quiet = 0;
  int64_t above = 0;                        ///< rounds in which the call beat both references
  std::optional<double> foreign_cpus = {};  ///< that other programs used meanwhile, see ForeignLoad

  /// Why the figures may not be those of this machine at its best, in one sentence; empty if nothing speaks against
  /// them.
  [[nodiscard]] std::string Doubt() const;
};

class BracketedRounds {
 public:
  explicit BracketedRounds(std::vector<Reference> references);

  /// One round: `calls` calls, at least one. @return seconds per call
  double Time(int64_t calls, const std::function<void()>& call);
  /// One round of calls that `time` times. It returns seconds per call.
  double Time(const std::function<double()>& time);

  [[nodiscard]] BracketedTiming Timing() const;

 private:
  struct Round {
    double seconds = 0;                 ///< per call
    std::vector<double> before, after;  ///< rates of the references
  };
  enum class Kind : uint8_t { kQuiet, kBusy, kAbove };

  [[nodiscard]] std::vector<double> MeasureRates(double round_seconds);
  [[nodiscard]] Kind KindOf(const Round& round) const;

  std::vector<Reference> references_;
  std::vector<Round> rounds_;
  std::vector<double> rates_;    ///< measured last
  std::vector<double> fastest_;  ///< of all rounds
  ForeignLoad load_;
};

/// What is timed, and who is told of the progress.
struct TimingPlan {
  double seconds = 0;  ///< of all calls together
  std::function<void()> call;
  std::vector<Reference> references;
  std::function<void(int percent)> progress = [](int) {};
};
/// Calls once, and then for about `seconds`, in at least three rounds.
[[nodiscard]] BracketedTiming TimeInRounds(const TimingPlan& plan);

}  // namespace fa::bench

#endif  // FA_PEAK_BRACKETED_ROUNDS_H_
