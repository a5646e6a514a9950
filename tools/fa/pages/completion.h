#ifndef FA_TOOLS_FA_PAGES_COMPLETION_H_
#define FA_TOOLS_FA_PAGES_COMPLETION_H_

#include <string>

#include "pages/command_tree.h"

namespace fa::tool {

// Each function returns a shell script that completes a program's commands and flags. The script also completes values
// that are files or words of a list.

[[nodiscard]] std::string BashCompletion(const CommandEntry& program);
[[nodiscard]] std::string ZshCompletion(const CommandEntry& program);
[[nodiscard]] std::string FishCompletion(const CommandEntry& program);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PAGES_COMPLETION_H_
