#ifndef FA_TOOLS_FA_COMMAND_LINE_H_
#define FA_TOOLS_FA_COMMAND_LINE_H_

#include <CLI/CLI.hpp>

namespace fa::tool {

/// An exit code: a problem with files or memory, or a defect.
inline constexpr int kFailure = 1;

/// Runs the command that the words name. An error is one line on stderr.
/// @param argv  as main gets it: the program's name first
/// @return the exit code: 0; kFailure; 2 for bad arguments
[[nodiscard]] int RunCommandLine(int argc, char** argv);
/// Every command, below `app`.
void AddCommands(CLI::App& app);
/// Prints the message in one line and returns the code. Allocates nothing, since it may say that there is no memory.
int ReportError(int exit_code, const char* message) noexcept;

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMAND_LINE_H_
