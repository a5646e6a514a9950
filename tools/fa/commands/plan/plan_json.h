#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_JSON_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_JSON_H_

#include <nlohmann/json.hpp>

#include "fa/plan.h"

namespace fa::tool {

/// Prints the plan as text, or its PlanInfo as one JSON object.
void PrintPlan(const Plan& plan, bool json);
/// Returns PlanInfo as JSON. The keys are the names of its fields.
[[nodiscard]] nlohmann::ordered_json PlanToJson(const PlanInfo& info);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_JSON_H_
