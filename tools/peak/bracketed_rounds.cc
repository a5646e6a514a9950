#include "peak/bracketed_rounds.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace fa::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Each reference is measured for an eighth of a round's time, but at most for 20 ms, which is enough for a CPU's clock
// to settle.
constexpr double kReferenceShare = 0.125, kLongestReference = 0.02;
// Around a quiet round, a reference may be this many times slower than its fastest rate. On shared cores of an Emerald
// Rapids, changes of the clock make a quiet core up to 1.35 times slower. A core whose other hyper-thread works is
// over 1.6 times slower.
constexpr double kSlowestQuiet = 1.35;
// This many rates are measured before the first round. Programs that take turns with this one on its CPUs may slow both
// rates around a round equally. At least one of the first rates is then likely to be undisturbed, and shows that both
// rates are too low.
constexpr int kFirstRates = 20;

// A round of TimeInRounds takes this share of plan.seconds, but at least kShortestCalls seconds. So a round is short
// enough to fit into a quiet moment, and long compared with the clock's resolution of 25 ns.
constexpr double kRoundShare = 1.0 / 500, kShortestCalls = 50e-6;
constexpr int kFewestRounds = 3;

std::string WithoutZeros(double number) {
  std::string text = std::to_string(number);
  return text.substr(0, text.find('.') + 3);
}

}  // namespace

BracketedRounds::BracketedRounds(std::vector<Reference> references)
    : references_(std::move(references)), fastest_(references_.size()) {}

std::vector<double> BracketedRounds::MeasureRates(double round_seconds) {
  const double seconds = std::min(kReferenceShare * round_seconds, kLongestReference);
  std::vector<double> rates;
  for (size_t i = 0; i < references_.size(); ++i) {
    rates.push_back(references_[i].rate(seconds));
    fastest_[i] = std::max(fastest_[i], rates[i]);
  }
  return rates;
}

double BracketedRounds::Time(const std::function<double()>& time) {
  for (int i = 0; rounds_.empty() && i < kFirstRates; ++i) rates_ = MeasureRates(0);
  Round round;
  round.before = std::move(rates_);
  const Clock::time_point begin = Clock::now();
  round.seconds = time();
  rates_ = MeasureRates(SecondsSince(begin));
  round.after = rates_;
  rounds_.push_back(std::move(round));
  return rounds_.back().seconds;
}

double BracketedRounds::Time(int64_t calls, const std::function<void()>& call) {
  return Time([&] {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    return SecondsSince(begin) / static_cast<double>(calls);
  });
}

BracketedRounds::Kind BracketedRounds::KindOf(const Round& round) const {
  Kind kind = Kind::kQuiet;
  for (size_t i = 0; i < references_.size(); ++i) {
    const auto [lower, higher] = std::minmax(round.before[i], round.after[i]);
    if (!(higher <= lower * (1 + references_[i].agreement) && higher * kSlowestQuiet >= fastest_[i]))
      return Kind::kBusy;
    if (references_[i].is_limit && references_[i].per_call / round.seconds > higher) kind = Kind::kAbove;
  }
  return kind;
}

BracketedTiming BracketedRounds::Timing() const {
  BracketedTiming timing = {.compared = std::vector<Compared>(references_.size()),
                            .rounds = static_cast<int64_t>(rounds_.size()),
                            .foreign_cpus = load_.Cpus()};
  std::vector<const Round*> quiet, all, others;
  for (const Round& round : rounds_) {
    all.push_back(&round);
    const Kind kind = KindOf(round);
    (kind == Kind::kQuiet ? quiet : others).push_back(&round);
    if (kind == Kind::kAbove) ++timing.above;
  }
  timing.quiet = static_cast<int64_t>(quiet.size());
  std::vector<const Round*>& chosen = quiet.empty() ? all : quiet;
  if (chosen.empty()) return timing;
  const auto sort = [](std::vector<const Round*>& some) {
    std::sort(some.begin(), some.end(), [](auto* a, auto* b) { return a->seconds < b->seconds; });
  };
  sort(chosen);
  sort(others);
  if (!quiet.empty() && !others.empty()) timing.busy = others[others.size() / 2]->seconds;
  const Round& best = *chosen.front();
  timing.best = best.seconds;
  timing.median = chosen[chosen.size() / 2]->seconds;
  for (size_t i = 0; i < references_.size(); ++i) {
    timing.compared[i].rate = std::max(best.before[i], best.after[i]);
    if (!quiet.empty()) timing.compared[i].fraction = references_[i].per_call / best.seconds / timing.compared[i].rate;
  }
  return timing;
}

std::string BracketedTiming::Doubt() const {
  std::string doubt;
  const auto add = [&doubt](const std::string& text) { doubt += (doubt.empty() ? "" : "; ") + text; };
  if (foreign_cpus && *foreign_cpus > kMostForeignCpus) {
    add("other programs used " + WithoutZeros(*foreign_cpus) + " CPUs meanwhile");
  }
  if (quiet == 0 && above > 0) {
    add("the calls are faster than the rate that was measured around them");
  } else if (quiet == 0) {
    add("no round was quiet");
  }
  return doubt;
}

BracketedTiming TimeInRounds(const TimingPlan& plan) {
  const auto once = [&plan] {
    const Clock::time_point begin = Clock::now();
    plan.call();
    return SecondsSince(begin);
  };
  (void)once();  // a first call that touches the memory and starts the threads
  const double round_seconds = std::max(kRoundShare * plan.seconds, kShortestCalls);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(round_seconds / std::max(once(), 1e-9)));
  BracketedRounds rounds(plan.references);
  double spent = 0;
  for (int round = 0; round < kFewestRounds || spent < plan.seconds; ++round) {
    plan.progress(static_cast<int>(100 * std::min(spent / plan.seconds, 1.0)));
    spent += static_cast<double>(calls) * rounds.Time(calls, plan.call);
  }
  return rounds.Timing();
}

}  // namespace fa::bench
