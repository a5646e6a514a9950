#ifndef FA_TOOLS_FA_FLAGS_RANK_FLAGS_H_
#define FA_TOOLS_FA_FLAGS_RANK_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "fa/rank_schedule.h"
#include "fa/sequence_shards.h"

namespace fa::tool {

/// Values of --cut, --strategy, --heads-in-flight.
struct CutFlags {
  std::string cut = "zigzag", strategy = "auto";
  int64_t heads_in_flight = 0;
};
void AddCutFlags(CLI::App& command, CutFlags& flags);
/// Returns the shards that the flags describe. The sizes of the sequences are not set. Throws UsageError.
[[nodiscard]] SequenceShards ShardsOf(const CutFlags& flags);

/// Values of --ranks, --network, --latency, --gflops and of CutFlags, for a call over ranks that is planned but not
/// run.
struct RankPlanFlags {
  CutFlags cut;
  int ranks = 0;  ///< number of ranks; 0 means one process without ranks
  double network_gbytes = 12.5, latency_us = 5, gflops = 0;
};
void AddRankPlanFlags(CLI::App& command, RankPlanFlags& flags);
/// Throws UsageError if flags about ranks are given without --ranks, or if a number is out of range.
void CheckRankPlanFlags(const CLI::App& command, const RankPlanFlags& flags);
[[nodiscard]] RankMachines MachinesOf(const RankPlanFlags& flags);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_FLAGS_RANK_FLAGS_H_
