#ifndef FA_TOOLS_FA_COMMAND_LINE_H_
#define FA_TOOLS_FA_COMMAND_LINE_H_

#include <CLI/CLI.hpp>

namespace fa::tool {

/// Runs the command that the words in `argv` name. Prints an error as one line on stderr.
/// @param argv  as main gets it, with the program's name first
/// @return the exit code: 0, kFailure or kBadArguments
[[nodiscard]] int RunCommandLine(int argc, char** argv);
/// Adds every command below `app`.
void AddCommands(CLI::App& app);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_COMMAND_LINE_H_
