#ifndef FA_BENCHMARKS_BUNDLE_COMMAND_H_
#define FA_BENCHMARKS_BUNDLE_COMMAND_H_

#include <string>
#include <vector>

namespace fa::bundle {

struct Outcome {
  int exit_code = -1;  ///< 124 if the program did not end in time
  std::string out;
  [[nodiscard]] bool ok() const { return exit_code == 0; }
  [[nodiscard]] bool late() const { return exit_code == 124; }
};

/// Runs a shell command for at most `seconds` on these CPUs. @return its exit code and standard output
[[nodiscard]] Outcome Run(const std::string& command, double seconds, const std::vector<int>& cpus);

/// Returns the CPUs that this process may use, the least disturbed first. Other programs, virtual machines and
/// hyper-threads disturb a CPU.
[[nodiscard]] std::vector<int> QuietestCpus();

}  // namespace fa::bundle

#endif  // FA_BENCHMARKS_BUNDLE_COMMAND_H_
