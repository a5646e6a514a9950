#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_OUTPUT_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_OUTPUT_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "commands/plan/plan_svg.h"
#include "fa/plan.h"

namespace fa::tool {

/// The flags that choose the form in which a plan is printed.
struct PlanOutputFlags {
  std::string svg;
  bool json = false;
};

/// Adds --svg and --json.
void AddPlanOutputFlags(CLI::App& command, PlanOutputFlags& flags);

/// Calls `make`, prints the plan that it returns, and draws the plan if the flags ask for a picture. Throws UsageError
/// and Failure before anything is written.
void WritePlan(const PlanOutputFlags& flags, const PlanPicture& picture, const std::function<Plan()>& make);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_OUTPUT_H_
