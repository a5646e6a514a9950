#include "tools/cli_run.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "tools/scratch_folder.h"

namespace fa::test {

bool CliResult::HasOneLineOfError() const {
  return err.size() > 1 && err.back() == '\n' && std::count(err.begin(), err.end(), '\n') == 1;
}

CliResult RunCommand(const std::string& command, const std::string& arguments, const std::string& environment) {
  const ScratchFolder scratch;
  const std::string line =
      environment + " " + command + " " + arguments + " 2>'" + scratch.Path("stderr") + "' </dev/null";
  std::FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + line);
  CliResult result;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) result.out.append(buffer, got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = scratch.Read("stderr");
  return result;
}

CliResult RunCli(const std::string& arguments, const std::string& environment) {
  return RunCommand(FA_CLI_COMMAND, arguments, environment);
}

CliResult RunShortBench(const std::string& arguments) { return RunCli("bench " + arguments + " --seconds 0.05"); }

size_t Occurrences(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace fa::test
