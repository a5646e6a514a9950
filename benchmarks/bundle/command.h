#ifndef FA_BENCHMARKS_BUNDLE_COMMAND_H_
#define FA_BENCHMARKS_BUNDLE_COMMAND_H_

#include <string>
#include <vector>

namespace fa::bundle {

struct Outcome {
  int exit_code = -1;  ///< 124 of a program that did not end in time
  std::string out;
  [[nodiscard]] bool ok() const { return exit_code == 0; }
  [[nodiscard]] bool late() const { return exit_code == 124; }
};

/// Runs a shell command for at most `seconds` on these CPUs. @return its standard output
[[nodiscard]] Outcome Run(const std::string& command, double seconds, const std::vector<int>& cpus);

/// The CPUs that this process may use, those first whose arithmetic unit other programs, virtual machines and
/// hyper-threads disturb least.
[[nodiscard]] std::vector<int> QuietestCpus();

}  // namespace fa::bundle

#endif  // FA_BENCHMARKS_BUNDLE_COMMAND_H_
