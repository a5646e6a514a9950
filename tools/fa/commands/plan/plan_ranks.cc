#include "commands/plan/plan_ranks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "commands/plan/plan_json.h"
#include "files/output_files.h"

namespace fa::tool {
namespace {

using nlohmann::ordered_json;

const char* StrategyName(SequenceShards::Strategy strategy) {
  return strategy == SequenceShards::Strategy::kHeads ? "heads" : "sequence";
}

ordered_json ToJson(const std::vector<SequenceShards::Interval>& rows) {
  ordered_json list = ordered_json::array();
  for (const SequenceShards::Interval& interval : rows) list.push_back({interval.begin, interval.end});
  return list;
}

ordered_json ToJson(const RankSchedule& schedule, const RankPlanFlags& flags) {
  ordered_json json = PlanToJson(schedule.info);
  json["ranks"] = schedule.ranks.size();
  json["cut"] = flags.cut.cut;
  json["strategy"] = StrategyName(schedule.strategy);
  json["as_one_process"] = schedule.as_one_process;
  json["row_unit"] = schedule.row_unit;
  json["network_bytes_per_second"] = flags.network_gbytes * 1e9;
  json["latency_seconds"] = flags.latency_us * 1e-6;
  json["seconds"] = schedule.seconds;
  json["hidden"] = schedule.hidden;
  ordered_json& ranks = json["of_rank"] = ordered_json::array();
  for (const RankSchedule::Rank& rank : schedule.ranks) {
    ranks.push_back({{"q_rows", ToJson(rank.q_rows)},
                     {"k_rows", ToJson(rank.k_rows)},
                     {"sent_bytes", rank.sent_bytes},
                     {"received_bytes", rank.received_bytes},
                     {"staged_bytes", rank.staged_bytes},
                     {"flops", rank.flops},
                     {"product_seconds", rank.product_seconds},
                     {"message_seconds", rank.message_seconds},
                     {"end_seconds", rank.end_seconds}});
  }
  return json;
}

}  // namespace

void WriteRankSchedule(const PlanOutputFlags& output, const RankPlanFlags& flags, PlanPicture picture,
                       const RankSchedule& schedule) {
  picture.worker = "rank";
  picture.facts = {
      fmt::format("{} ranks, cut {}, strategy {}; bits {}", schedule.ranks.size(), flags.cut.cut,
                  StrategyName(schedule.strategy), schedule.as_one_process ? "as one process" : "of this cut"),
      fmt::format("predicted {:.3g} s, efficiency {:.1f} %, messages hidden {:.0f} %; network {:.3g} GB/s, {:.3g} us",
                  schedule.seconds, 100 * schedule.efficiency, 100 * schedule.hidden, flags.network_gbytes,
                  flags.latency_us)};
  OutputFiles files;
  std::string svg;
  if (!output.svg.empty()) {
    const size_t file = files.Add("--svg", output.svg);
    svg = DrawPlan(schedule.info, picture);
    files.Set(file, svg);
  }
  files.Commit();
  fmt::print("{}", output.json ? ToJson(schedule, flags).dump(2) + "\n" : schedule.text);
}

}  // namespace fa::tool
