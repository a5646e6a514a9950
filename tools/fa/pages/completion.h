#ifndef FA_TOOLS_FA_PAGES_COMPLETION_H_
#define FA_TOOLS_FA_PAGES_COMPLETION_H_

#include <string>

#include "pages/command_tree.h"

namespace fa::tool {

// Scripts that complete the words of fa: commands, flags, and the values of flags that take a file or one of some
// words.

[[nodiscard]] std::string BashCompletion(const CommandEntry& fa);
[[nodiscard]] std::string ZshCompletion(const CommandEntry& fa);
[[nodiscard]] std::string FishCompletion(const CommandEntry& fa);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PAGES_COMPLETION_H_
