#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/plan.h"

namespace fa::tool {

/// What the picture shows and the plan does not say.
struct PlanPicture {
  std::string title;
  const char* keys = "keys";  ///< what the columns are, as a plural noun
  int64_t batch = 1, heads = 1, sq = 0, sk = 0;
  const char* worker = "worker";  ///< what one colour stands for, in the singular: "worker" or "rank"
  // At most two lines below the title, instead of what the plan says about itself.
  std::vector<std::string> facts = {};
};

/// Returns an SVG document that shows the (row x key) area of the first heads. Each tile has the colour of its worker.
/// Keys that no tile visits are blank.
[[nodiscard]] std::string DrawPlan(const PlanInfo& info, const PlanPicture& picture);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
