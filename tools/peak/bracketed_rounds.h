#ifndef FA_PEAK_BRACKETED_ROUNDS_H_
#define FA_PEAK_BRACKETED_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "peak/foreign_load.h"

/// Times calls, and compares them with what the machine can do at the same time.
///
/// If other programs also use a machine's cores, or if its clock changes, no peak holds for a whole run. So calls are
/// timed in short rounds. A reference is the rate of the arithmetic unit or of reading memory. Each reference is
/// measured right before and right after each round. A round is busy if its two references differ, or if they are far
/// below the fastest reference of all rounds. A busy round says nothing about the call. If the call beats both
/// references of a round, something disturbed the references, and the round is not used. All other rounds are quiet. A
/// fraction compares a quiet round with the round's own references, so it is at most 1.
namespace fa::bench {

/// A rate with which calls are compared.
struct Reference {
  double per_call = 0;                         ///< FLOPs or bytes per call, in the unit of `rate`
  std::function<double(double seconds)> rate;  ///< measures the rate for about `seconds`
  double agreement = 0.03;                     ///< largest relative difference of the rates around a quiet round
  bool is_limit = true;                        ///< whether no call can be faster
};

/// How calls compare with one reference.
struct Compared {
  double rate = 0;                      ///< the higher of the two rates around the best round
  std::optional<double> fraction = {};  ///< the call's fraction of `rate`; nothing without a quiet round
};

struct BracketedTiming {
  double best = 0, median = 0;      ///< seconds per call: of the quiet rounds, or of all rounds if none is quiet
  std::optional<double> busy = {};  ///< median of the rounds that are not quiet; nothing if all or none are quiet
  std::vector<Compared> compared;
  int64_t rounds = 0, quiet = 0;
  int64_t above = 0;  ///< rounds in which the call beat both references
  /// How many CPUs other programs used while the calls were timed (ForeignLoad).
  std::optional<double> foreign_cpus = {};

  /// Returns in one sentence why the figures may be below this machine's best, or "" if there is no doubt.
  [[nodiscard]] std::string Doubt() const;
};

class BracketedRounds {
 public:
  explicit BracketedRounds(std::vector<Reference> references);

  /// Times one round of `calls` calls, at least one.
  /// @return seconds per call
  double Time(int64_t calls, const std::function<void()>& call);
  /// Runs one round. `time` makes the calls, times them, and returns the seconds per call, which this function returns
  /// too.
  double Time(const std::function<double()>& time);

  [[nodiscard]] BracketedTiming Timing() const;

 private:
  struct Round {
    double seconds = 0;                 ///< seconds per call
    std::vector<double> before, after;  ///< the rates of the references before and after the round
  };
  enum class Kind : uint8_t { kQuiet, kBusy, kAbove };

  [[nodiscard]] std::vector<double> MeasureRates(double round_seconds);
  [[nodiscard]] Kind KindOf(const Round& round) const;

  std::vector<Reference> references_;
  std::vector<Round> rounds_;
  std::vector<double> rates_;    ///< the latest rate of each reference
  std::vector<double> fastest_;  ///< the fastest rate of each reference so far
  ForeignLoad load_;
};

/// What TimeInRounds times, and for how long: a call, its references, and a function that is told the progress.
struct TimingPlan {
  double seconds = 0;  ///< time of all calls together
  std::function<void()> call;
  std::vector<Reference> references;
  std::function<void(int percent)> progress = [](int) {};
};
/// Makes some calls that do not count, then times calls for about `plan.seconds` in at least three rounds.
[[nodiscard]] BracketedTiming TimeInRounds(const TimingPlan& plan);

}  // namespace fa::bench

#endif  // FA_PEAK_BRACKETED_ROUNDS_H_
