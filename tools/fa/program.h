#ifndef FA_TOOLS_FA_PROGRAM_H_
#define FA_TOOLS_FA_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>

namespace fa::tool {

// Exit codes of the tools other than 0. They are 1 for problems with files or memory and for defects, and 2 for bad
// arguments.
inline constexpr int kFailure = 1;
inline constexpr int kBadArguments = 2;

/// Prints "PROGRAM: message" in one line on stderr and returns the exit code. Allocates nothing, because the message
/// may say that there is no memory.
int Report(const char* program, int exit_code, const char* message) noexcept;

/// Runs the function, and prints what it throws as one line on stderr.
/// @return 0, kFailure or kBadArguments
int ExitCodeOf(const char* program, const std::function<void()>& run);

/// Lets the app read the words, which calls the callback of the command that they name. Prints help and version. Throws
/// UsageError for wrong words, and everything that the callback throws.
void Parse(CLI::App& app, int argc, char** argv);

/// Makes sure that all standard output so far has been written. Throws Failure.
void FinishOutput();

/// Prepares for destructors of nlohmann::json, which allocate and so may throw for lack of memory. The process then
/// ends as after any other lack of memory: with a line on stderr, exit code 1, and without incomplete files.
/// @param program  a name that lives as long as the process
void EndCleanlyWithoutMemory(const char* program);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PROGRAM_H_
