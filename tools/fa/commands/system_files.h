#ifndef FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
#define FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace fa::tool {

/// Returns the first line of a file of Linux in /proc or /sys, or "" if there is no such file.
[[nodiscard]] std::string FirstLine(const std::filesystem::path& path);
/// Returns how many numbers a list such as "0-3,8" stands for, here 5.
[[nodiscard]] int64_t CountOfList(const std::string& list);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMANDS_SYSTEM_FILES_H_
