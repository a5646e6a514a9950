#ifndef FA_TOOLS_FA_PLAN_OUTPUT_H_
#define FA_TOOLS_FA_PLAN_OUTPUT_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "fa/plan.h"
#include "plan_svg.h"

namespace fa::tool {

/// What becomes of a plan.
struct PlanOutputFlags {
  std::string svg;
  bool json = false;
};

/// --svg, --json.
void AddPlanOutputFlags(CLI::App& command, PlanOutputFlags& flags);

/// Calls `make`, prints its plan and draws it where the flags say so. Throws UsageError and Failure; then nothing was
/// written.
void WritePlan(const PlanOutputFlags& flags, const PlanPicture& picture, const std::function<Plan()>& make);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PLAN_OUTPUT_H_
