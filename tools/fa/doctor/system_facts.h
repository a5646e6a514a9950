#ifndef FA_TOOLS_FA_DOCTOR_SYSTEM_FACTS_H_
#define FA_TOOLS_FA_DOCTOR_SYSTEM_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fa::tool {

/// What the operating system allows this process. A member is empty or 0 if the system does not say it.
struct SystemFacts {
  int64_t online_cpus = 0;               ///< number of hardware threads of the machine
  int64_t allowed_cpus = 0;              ///< hardware threads in the affinity mask of the process
  std::optional<double> cpu_limit = {};  ///< CPU time per second that the control groups grant
  int64_t memory_bytes = 0, available_bytes = 0;
  std::optional<int64_t> memory_limit_bytes = {};  ///< the memory that the control groups allow
  std::string transparent_huge_pages = {};         ///< "always", "madvise" or "never"
  int64_t reserved_huge_pages = 0, huge_page_bytes = 0;
  /// The governor of each CPU; equal ones are listed once. The list is empty on most virtual machines.
  std::vector<std::string> governors = {};
  int64_t numa_nodes = 1;
  bool numa_balancing = false;
};

/// @param root  the folder that contains /proc and /sys, or "" for this machine
[[nodiscard]] SystemFacts ReadSystemFacts(const std::string& root);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_DOCTOR_SYSTEM_FACTS_H_
