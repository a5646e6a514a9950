#ifndef FA_TOOLS_FA_PROGRAM_H_
#define FA_TOOLS_FA_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>

namespace fa::tool {

// Exit codes other than 0: 1 for problems with files or memory and for defects, and 2 for bad arguments.
inline constexpr int kFailure = 1;
inline constexpr int kBadArguments = 2;

/// Prints "PROGRAM: message" as one line on stderr and returns `exit_code`. Allocates nothing, because the message may
/// be that there is no memory.
int Report(const char* program, int exit_code, const char* message) noexcept;

/// Calls `run`. If `run` throws, prints the error as one line on stderr.
/// @return 0, kFailure or kBadArguments
int ExitCodeOf(const char* program, const std::function<void()>& run);

/// Lets `app` parse the words, which calls the callback of the command that they name. Prints help and version. Throws
/// UsageError for wrong words, and whatever the callback throws.
void Parse(CLI::App& app, int argc, char** argv);

/// Makes sure that everything printed to standard output so far is written. Throws Failure.
void FinishOutput();

/// Prepares for a lack of memory in destructors of nlohmann::json, which allocate and so may throw. The process then
/// ends as after any other lack of memory: with a line on stderr, exit code 1, and no incomplete files.
/// @param program  the program's name, which must live as long as the process
void EndCleanlyWithoutMemory(const char* program);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PROGRAM_H_
