#ifndef FA_TESTS_TOOLS_CLI_RUN_H_
#define FA_TESTS_TOOLS_CLI_RUN_H_

#include <cstddef>
#include <string>

namespace fa::test {

/// What a run of the command line tool left behind.
struct CliResult {
  int exit_code = -1;
  std::string out, err;

  /// Whether err is exactly one line.
  [[nodiscard]] bool HasOneLineOfError() const;
};

/// Runs `COMMAND ARGUMENTS`, as a shell would; `environment` is put before it ("FA_FORCE_ISA=avx2").
[[nodiscard]] CliResult RunCommand(const std::string& command, const std::string& arguments,
                                   const std::string& environment);

/// Runs `fa ARGUMENTS`, in the same way.
[[nodiscard]] CliResult RunCli(const std::string& arguments, const std::string& environment = "");

/// Runs `fa bench ARGUMENTS` with as few calls as it times: tests look at what it checks and prints, not at rates.
[[nodiscard]] CliResult RunShortBench(const std::string& arguments);

/// How often `word` occurs in `text`.
[[nodiscard]] size_t Occurrences(const std::string& text, const std::string& word);

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_CLI_RUN_H_
