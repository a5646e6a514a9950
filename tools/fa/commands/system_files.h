#ifndef FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
#define FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace fa::tool {

/// Returns the first line of one of the kernel's files (/proc, /sys), or "" if there is no such file.
[[nodiscard]] std::string FirstLine(const std::filesystem::path& path);
/// Returns the number of elements of a list: 5 for "0-3,8".
[[nodiscard]] int64_t CountOfList(const std::string& list);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
