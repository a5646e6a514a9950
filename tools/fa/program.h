#ifndef FA_TOOLS_FA_PROGRAM_H_
#define FA_TOOLS_FA_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>

namespace fa::tool {

// Exit codes of the tools: 0; 1 for problems with files or memory and for defects; 2 for bad arguments.
inline constexpr int kFailure = 1;
inline constexpr int kBadArguments = 2;

/// Prints "PROGRAM: message" in one line on stderr and returns the exit code. Allocates nothing, since it may say that
/// there is no memory.
int Report(const char* program, int exit_code, const char* message) noexcept;

/// Runs it. What it throws is one line on stderr.
/// @return 0; kFailure; kBadArguments
int ExitCodeOf(const char* program, const std::function<void()>& run);

/// Makes the app read the words: the callback of the command that they name is called. Help and version are printed.
/// Throws UsageError for words that are wrong, and what the callback throws.
void Parse(CLI::App& app, int argc, char** argv);

/// Standard output up to here has arrived. Throws Failure.
void FinishOutput();

/// Where a destructor throws without memory (those of nlohmann::json allocate), the process ends as after any other
/// lack of memory: with a line on stderr, exit code 1, and without files that are not complete.
/// @param program  a name that lives as long as the process
void EndCleanlyWithoutMemory(const char* program);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PROGRAM_H_
