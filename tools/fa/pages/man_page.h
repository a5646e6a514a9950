#ifndef FA_TOOLS_FA_PAGES_MAN_PAGE_H_
#define FA_TOOLS_FA_PAGES_MAN_PAGE_H_

#include <string>
#include <vector>

#include "pages/command_tree.h"

namespace fa::tool {

/// A page of section 1 of the manual, written in troff's macros man(7).
struct ManPage {
  std::string name;  ///< "fa-run"
  std::string text;
};

/// Returns one page for the program and one for each command directly below it. The page of a command also covers its
/// subcommands.
[[nodiscard]] std::vector<ManPage> ManPages(const CommandEntry& program);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PAGES_MAN_PAGE_H_
