#ifndef FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
#define FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace fa::tool {

/// Returns the first line of a file of the kernel (/proc, /sys), or "" if there is no such file.
[[nodiscard]] std::string FirstLine(const std::filesystem::path& path);
/// Returns how many numbers a list of the kernel has, such as 5 for "0-3,8".
[[nodiscard]] int64_t CountOfList(const std::string& list);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
