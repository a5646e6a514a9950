#include "commands/plan/plan_json.h"

#include <fmt/format.h>

#include <string>

namespace fa::tool {

nlohmann::ordered_json PlanToJson(const PlanInfo& info) {
  nlohmann::ordered_json json = {{"op", info.op},
                                 {"isa", info.isa},
                                 {"kernels", info.kernels},
                                 {"reason", info.reason},
                                 {"block_q", info.block_q},
                                 {"block_k", info.block_k},
                                 {"tasks", info.tasks},
                                 {"edges", info.edges},
                                 {"workers", info.workers},
                                 {"flops", info.flops},
                                 {"flops_full", info.flops_full},
                                 {"flops_visited", info.flops_visited},
                                 {"workspace_bytes", info.workspace_bytes},
                                 {"efficiency", info.efficiency},
                                 {"load", info.load}};
  nlohmann::ordered_json& tiles = json["tiles"] = nlohmann::ordered_json::array();
  for (const PlanTile& tile : info.tiles) {
    tiles.push_back({{"batch", tile.batch},
                     {"head_kv", tile.head_kv},
                     {"head_begin", tile.head_begin},
                     {"head_end", tile.head_end},
                     {"row_begin", tile.row_begin},
                     {"row_end", tile.row_end},
                     {"key_begin", tile.key_begin},
                     {"key_end", tile.key_end},
                     {"cost", tile.cost},
                     {"worker", tile.worker}});
  }
  return json;
}

void PrintPlan(const Plan& plan, bool json) {
  const std::string text = json ? PlanToJson(plan.info()).dump(2) : plan.Describe();
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace fa::tool
