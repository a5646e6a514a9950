#ifndef FA_TESTS_TOOLS_CLI_RUN_H_
#define FA_TESTS_TOOLS_CLI_RUN_H_

#include <cstddef>
#include <string>

namespace fa::test {

/// The result of a run of the command line tool.
struct CliResult {
  int exit_code = -1;
  std::string out, err;

  /// Returns whether err is exactly one line.
  [[nodiscard]] bool HasOneLineOfError() const;
};

/// Runs `COMMAND ARGUMENTS` as a shell would, with `environment` before it ("FA_FORCE_ISA=avx2").
[[nodiscard]] CliResult RunCommand(const std::string& command, const std::string& arguments,
                                   const std::string& environment);

/// Runs `fa ARGUMENTS` as RunCommand does.
[[nodiscard]] CliResult RunCli(const std::string& arguments, const std::string& environment = "");

/// Runs `fa bench ARGUMENTS` with the fewest calls that the tool times. Tests check its comparisons and its output with
/// it, not its rates.
[[nodiscard]] CliResult RunShortBench(const std::string& arguments);

/// Returns how often `word` occurs in `text`.
[[nodiscard]] size_t Occurrences(const std::string& text, const std::string& word);

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_CLI_RUN_H_
