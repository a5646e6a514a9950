#ifndef FA_TESTS_TOOLS_CLI_RUN_H_
#define FA_TESTS_TOOLS_CLI_RUN_H_

#include <cstddef>
#include <string>

namespace fa::test {

/// What a run of the command line tool returned and printed.
struct CliResult {
  int exit_code = -1;
  std::string out, err;

  /// Returns whether `err` is exactly one line.
  [[nodiscard]] bool HasOneLineOfError() const;
};

/// Runs `COMMAND ARGUMENTS` in a shell. `environment` stands before the command, for example "FA_FORCE_ISA=avx2".
[[nodiscard]] CliResult RunCommand(const std::string& command, const std::string& arguments,
                                   const std::string& environment);

/// Runs `fa ARGUMENTS` as RunCommand does.
[[nodiscard]] CliResult RunCli(const std::string& arguments, const std::string& environment = "");

/// Runs `fa bench ARGUMENTS` with the fewest calls that can be timed. Tests use it to check comparisons and output, not
/// rates.
[[nodiscard]] CliResult RunShortBench(const std::string& arguments);

/// Returns how often `word` occurs in `text`.
[[nodiscard]] size_t Occurrences(const std::string& text, const std::string& word);

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_CLI_RUN_H_
