#include "doctor/system_facts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>

#include "commands/system_files.h"

namespace fa::tool {
namespace {

/// Returns the value in a file's line "key: value", or "" if there is no such line.
std::string ValueOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    const size_t begin = line.find_first_not_of(" \t", key.size() + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t KibOf(const std::string& path, const std::string& key) {
  return static_cast<int64_t>(std::atoll(ValueOf(path, key).c_str())) << 10;
}

/// Returns the choice that is in brackets, such as "madvise" in "always [madvise] never".
std::string Chosen(const std::string& choices) {
  const size_t begin = choices.find('['), end = choices.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return choices.substr(begin + 1, end - begin - 1);
}

template <typename T>
void Lower(std::optional<T>& least, T limit) {
  least = least ? std::min(*least, limit) : limit;
}

/// The lowest limits of the process's control groups and of all groups above them, in versions 1 and 2.
class GroupLimits {
 public:
  explicit GroupLimits(const std::string& root) : root_(root) {
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const size_t first = line.find(':');
      if (first == std::string::npos) continue;
      const size_t second = line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const std::string path = line.substr(second + 1);
      if (controllers == ",,") Walk(path, {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"});
      if (controllers.find(",cpu,") != std::string::npos) {
        Walk(path, {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"});
      }
      if (controllers.find(",memory,") != std::string::npos) Walk(path, {"/sys/fs/cgroup/memory"});
    }
  }
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;

 private:
  /// Reads the limits of the group and of all groups above it, up to the root. In a container the path may be a path of
  /// the host, while the container's own group is mounted as the root. Then only the root is found.
  void Walk(std::string group, std::initializer_list<const char*> mounts) {
    for (;;) {
      while (group.ends_with('/')) group.pop_back();
      for (const char* mount : mounts) Look(root_ + mount + group);
      if (group.empty()) return;
      group.resize(std::min(group.rfind('/'), group.size() - 1));
    }
  }

  void Look(const std::string& folder) {
    const std::string both = FirstLine(folder + "/cpu.max");
    const size_t space = both.find(' ');
    if (space != std::string::npos) {
      NoteCpus(std::atof(both.c_str()), std::atof(both.c_str() + space));
    } else {
      NoteCpus(std::atof(FirstLine(folder + "/cpu.cfs_quota_us").c_str()),
               std::atof(FirstLine(folder + "/cpu.cfs_period_us").c_str()));
    }
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) NoteMemory(FirstLine(folder + file));
  }

  /// Notes a limit on CPU time. A quota of 0 or less means no limit; both "max" and -1 become such a quota.
  void NoteCpus(double quota, double period) {
    if (quota > 0 && period > 0) Lower(cpus, quota / period);
  }

  void NoteMemory(const std::string& text) {
    // Control groups of version 1 report 2^63 minus a page if there is no limit.
    constexpr int64_t kNoLimit = int64_t{1} << 60;
    const auto bytes = static_cast<int64_t>(std::atoll(text.c_str()));
    if (bytes > 0 && bytes < kNoLimit) Lower(memory_bytes, bytes);
  }

  const std::string& root_;
};

std::vector<std::string> Governors(const std::string& root) {
  namespace fs = std::filesystem;
  std::set<std::string> names;
  std::error_code missing;
  for (const fs::directory_entry& policy : fs::directory_iterator(root + "/sys/devices/system/cpu/cpufreq", missing)) {
    const std::string name = FirstLine(policy.path() / "scaling_governor");
    if (!name.empty()) names.insert(name);
  }
  return {names.begin(), names.end()};
}

}  // namespace

SystemFacts ReadSystemFacts(const std::string& root) {
  const std::string memory = root + "/proc/meminfo", system = root + "/sys/devices/system";
  const GroupLimits groups(root);
  SystemFacts facts;
  facts.online_cpus = CountOfList(FirstLine(system + "/cpu/online"));
  facts.allowed_cpus = CountOfList(ValueOf(root + "/proc/self/status", "Cpus_allowed_list"));
  facts.cpu_limit = groups.cpus;
  facts.memory_bytes = KibOf(memory, "MemTotal");
  facts.available_bytes = KibOf(memory, "MemAvailable");
  facts.memory_limit_bytes = groups.memory_bytes;
  facts.transparent_huge_pages = Chosen(FirstLine(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.reserved_huge_pages = std::atoll(ValueOf(memory, "HugePages_Total").c_str());
  facts.huge_page_bytes = KibOf(memory, "Hugepagesize");
  facts.governors = Governors(root);
  facts.numa_nodes = std::max<int64_t>(1, CountOfList(FirstLine(system + "/node/online")));
  facts.numa_balancing = (std::atoi(FirstLine(root + "/proc/sys/kernel/numa_balancing").c_str()) & 1) != 0;
  return facts;
}

}  // namespace fa::tool
