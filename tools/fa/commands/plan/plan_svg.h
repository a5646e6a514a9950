#ifndef FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
#define FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/plan.h"

namespace fa::tool {

/// Facts of the picture that the plan does not have.
struct PlanPicture {
  std::string title;
  const char* keys = "keys";  ///< name of the columns
  int64_t batch = 1, heads = 1, sq = 0, sk = 0;
  const char* worker = "worker";  ///< name of the owner of a colour
  // At most two lines below the title, which replace the facts of the plan.
  std::vector<std::string> facts = {};
};

/// Returns an SVG document with the (row x key) area of the first heads. Each tile has the colour of its worker. Keys
/// that no tile visits are blank.
[[nodiscard]] std::string DrawPlan(const PlanInfo& info, const PlanPicture& picture);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_PLAN_PLAN_SVG_H_
