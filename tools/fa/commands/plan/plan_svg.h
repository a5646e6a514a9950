#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/plan.h"

namespace fa::tool {

/// What the picture says that the plan does not.
struct PlanPicture {
  std::string title;
  const char* keys = "keys";  ///< what the columns are
  int64_t batch = 1, heads = 1, sq = 0, sk = 0;
  const char* worker = "worker";        ///< what has a colour
  std::vector<std::string> facts = {};  ///< at most two lines below the title, in place of what the plan says of itself
};

/// An SVG document: the (row x key) area of the first heads. Each tile has the colour of its worker; keys that no tile
/// visits are left blank.
[[nodiscard]] std::string DrawPlan(const PlanInfo& info, const PlanPicture& picture);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
