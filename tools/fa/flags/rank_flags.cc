#include "flags/rank_flags.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "flags/failure.h"
#include "flags/flag_values.h"

namespace fa::tool {
namespace {

using Cut = SequenceShards::Cut;
using Strategy = SequenceShards::Strategy;

/// Parses a text such as "0,8,24,32:8,24". The text has one list per rank, in which begin and end of each interval
/// alternate.
std::vector<std::vector<SequenceShards::Interval>> ParseIntervals(const std::string& text) {
  std::vector<std::vector<SequenceShards::Interval>> intervals;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    std::vector<SequenceShards::Interval>& of_rank = intervals.emplace_back();
    if (end > at) {
      const std::vector<int64_t> rows = ParseIntegers("--cut", text.substr(at, end - at));
      if (rows.size() % 2 != 0) {
        throw UsageError(fmt::format("--cut: {} numbers for rank {}, want a begin and an end for each interval",
                                     rows.size(), intervals.size() - 1));
      }
      for (size_t i = 0; i < rows.size(); i += 2) of_rank.push_back({rows[i], rows[i + 1]});
    }
    at = end + 1;
  }
  return intervals;
}

Strategy ParseStrategy(const std::string& text) {
  if (text == "auto") return Strategy::kAuto;
  if (text == "heads") return Strategy::kHeads;
  if (text == "sequence") return Strategy::kSequence;
  throw UsageError(fmt::format("--strategy: '{}', want auto, heads or sequence", text));
}

}  // namespace

void AddCutFlags(CLI::App& command, CutFlags& flags) {
  command.add_option("--cut", flags.cut,
                     "Rows of each rank: zigzag (default), contiguous, or begin,end,begin,end... per rank, ranks "
                     "separated by ':'");
  command.add_option("--strategy", flags.strategy, "What travels; default: auto")->type_name("auto|heads|sequence");
  command
      .add_option("--heads-in-flight", flags.heads_in_flight,
                  "kv heads that a rank works on at a time; default: one, backward: by plan")
      ->type_name("N");
}

SequenceShards ShardsOf(const CutFlags& flags) {
  if (flags.heads_in_flight < 0) {
    throw UsageError(fmt::format("--heads-in-flight: {}, want at least 0", flags.heads_in_flight));
  }
  SequenceShards shards;
  shards.strategy = ParseStrategy(flags.strategy);
  shards.heads_in_flight = flags.heads_in_flight;
  if (flags.cut == "zigzag") return shards;
  if (flags.cut == "contiguous") {
    shards.cut = Cut::kContiguous;
    return shards;
  }
  if (flags.cut.find_first_not_of("0123456789,:-") != std::string::npos) {
    throw UsageError(fmt::format("--cut: '{}', want zigzag, contiguous or intervals", flags.cut));
  }
  shards.cut = Cut::kIntervals;
  shards.intervals = ParseIntervals(flags.cut);
  return shards;
}

void AddRankPlanFlags(CLI::App& command, RankPlanFlags& flags) {
  command.add_option("--ranks", flags.ranks, "Plan over this many processes of --threads threads each")->type_name("P");
  AddCutFlags(command, flags.cut);
  command
      .add_option("--network", flags.network_gbytes, "GB/s that a rank sends while it receives as many; default: 12.5")
      ->type_name("GB/S");
  command.add_option("--latency", flags.latency_us, "Latency of one message, in microseconds; default: 5")
      ->type_name("US");
  command
      .add_option("--gflops", flags.gflops,
                  "Rate of one thread, as fa bench measures it; default: half the multiply-adds of a core of 2 GHz of "
                  "the level")
      ->type_name("G");
}

void CheckRankPlanFlags(const CLI::App& command, const RankPlanFlags& flags) {
  constexpr std::array<const char*, 6> kNeedRanks = {"--cut",     "--strategy", "--heads-in-flight",
                                                     "--network", "--latency",  "--gflops"};
  const bool has_ranks = command.count("--ranks") > 0;
  for (const char* flag : kNeedRanks) {
    if (!has_ranks && command.count(flag) > 0) throw UsageError(fmt::format("{}: needs --ranks", flag));
  }
  if (!has_ranks) return;
  if (flags.ranks < 1) throw UsageError(fmt::format("--ranks: {}, want at least 1", flags.ranks));
  const auto positive = [](double number) { return number > 0 && std::isfinite(number); };
  if (!positive(flags.network_gbytes)) {
    throw UsageError(fmt::format("--network: {}, want a number above 0", flags.network_gbytes));
  }
  if (!(flags.latency_us >= 0 && std::isfinite(flags.latency_us))) {
    throw UsageError(fmt::format("--latency: {}, want at least 0", flags.latency_us));
  }
  if (command.count("--gflops") > 0 && !positive(flags.gflops)) {
    throw UsageError(fmt::format("--gflops: {}, want a number above 0", flags.gflops));
  }
}

RankMachines MachinesOf(const RankPlanFlags& flags) {
  return {.ranks = flags.ranks,
          .threads = 0,
          .flops_per_thread = flags.gflops * 1e9,
          .network_bytes_per_s = flags.network_gbytes * 1e9,
          .latency_s = flags.latency_us * 1e-6};
}

}  // namespace fa::tool
