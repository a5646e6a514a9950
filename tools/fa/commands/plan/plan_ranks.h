#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_RANKS_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_RANKS_H_

#include "commands/plan/plan_output.h"
#include "fa/rank_schedule.h"
#include "flags/rank_flags.h"

namespace fa::tool {

/// Prints a schedule as text or JSON, and draws it if the flags ask for a picture. Throws UsageError and Failure.
/// @param picture  has title and sizes; this function adds what the picture says about ranks
void WriteRankSchedule(const PlanOutputFlags& output, const RankPlanFlags& flags, PlanPicture picture,
                       const RankSchedule& schedule);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_RANKS_H_
