#include "core/machine/machine_files.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include "core/machine/kernel_files.h"

namespace fa::core {
namespace {

constexpr const char* kCpus = "/sys/devices/system/cpu/cpu";
constexpr const char* kNodes = "/sys/devices/system/node/";

/// Returns the first hardware thread of the core that has `cpu`. The number of that thread identifies the core.
int CoreOf(const KernelFiles& files, int cpu) {
  const std::string folder = kCpus + std::to_string(cpu) + "/topology/";
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {  // Linux before 5.3 has only the second file
    if (const std::vector<int> siblings = files.List(folder + name); !siblings.empty()) return siblings.front();
  }
  return cpu;
}

int Cores(const KernelFiles& files, const std::vector<int>& cpus) {
  std::vector<int> cores;
  for (const int cpu : cpus) cores.push_back(CoreOf(files, cpu));
  std::sort(cores.begin(), cores.end());
  return static_cast<int>(std::unique(cores.begin(), cores.end()) - cores.begin());
}

int Packages(const KernelFiles& files, const std::vector<int>& cpus) {
  std::vector<int64_t> packages;
  for (const int cpu : cpus) {
    const std::string path = kCpus + std::to_string(cpu) + "/topology/physical_package_id";
    packages.push_back(files.Number(path).value_or(0));
  }
  std::sort(packages.begin(), packages.end());
  return static_cast<int>(std::unique(packages.begin(), packages.end()) - packages.begin());
}

// Returns the NUMA nodes of the machine. Nodes that have only memory and no processors are dropped.
std::vector<Topology::Node> Nodes(const KernelFiles& files, const std::vector<int>& allowed) {
  std::vector<Topology::Node> nodes;
  std::vector<int> rest = allowed;  // hardware threads that no node has claimed so far
  for (const int number : files.List(std::string(kNodes) + "online")) {
    Topology::Node node{.os_index = number};
    const std::vector<int> cpus = files.List(kNodes + ("node" + std::to_string(number)) + "/cpulist");
    std::set_intersection(cpus.begin(), cpus.end(), rest.begin(), rest.end(), std::back_inserter(node.cpus));
    std::erase_if(rest, [&](int cpu) { return std::binary_search(node.cpus.begin(), node.cpus.end(), cpu); });
    node.cores = Cores(files, node.cpus);
    if (node.cores > 0) nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return {{.os_index = 0, .cores = Cores(files, allowed), .cpus = allowed}};
  return nodes;
}

void ReadCaches(const KernelFiles& files, int cpu, Topology& machine) {
  for (int index = 0;; ++index) {
    const std::string folder = kCpus + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
    const std::optional<int64_t> level = files.Number(folder + "level");
    if (!level) return;
    char unit = '\0';
    const int64_t size = files.Number(folder + "size", &unit).value_or(0);
    const int64_t bytes = unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
    if (bytes <= 0 || files.Text(folder + "type") == "Instruction") continue;
    if (*level == 1) machine.l1_bytes = bytes;
    if (*level == 2) machine.l2_bytes = bytes;
    if (*level == 3) machine.l3_bytes = bytes;
  }
}

/// Returns the path of this process's control group from the line of /proc/self/cgroup that names `controller`. An
/// empty `controller` stands for the line of version 2, which names no controller.
std::string GroupOf(std::string_view groups, std::string_view controller) {
  while (!groups.empty()) {
    std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    line.remove_prefix(std::min(line.find(':') + 1, line.size()));
    std::string_view controllers = line.substr(0, line.find(':'));
    const std::string_view path = line.substr(std::min(controllers.size() + 1, line.size()));
    if (controller.empty() && controllers.empty()) return std::string(path);
    while (!controllers.empty()) {
      const std::string_view name = controllers.substr(0, controllers.find(','));
      if (name == controller) return std::string(path);
      controllers.remove_prefix(std::min(name.size() + 1, controllers.size()));
    }
  }
  return {};
}

int64_t CpusOf(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return std::numeric_limits<int64_t>::max();
  return (quota - 1) / period + 1;
}

/// Returns how many CPUs the control group in folder `group` may use at most. Version 2 has one file, with the text
/// "200000 100000" or "max 100000". Version 1 has two files, with -1 for no limit.
int64_t LimitOf(const KernelFiles& files, const std::string& group) {
  const std::string text = files.Text(group + "/cpu.max");
  const size_t space = text.find(' ');
  if (space != std::string::npos && !text.starts_with("max")) {
    return CpusOf(std::atoll(text.c_str()), std::atoll(text.c_str() + space));
  }
  return CpusOf(files.Number(group + "/cpu.cfs_quota_us").value_or(-1),
                files.Number(group + "/cpu.cfs_period_us").value_or(0));
}

}  // namespace

Topology ReadMachine(const std::string& root, const std::vector<int>& allowed) {
  const KernelFiles files(root);
  Topology machine;
  machine.nodes = Nodes(files, allowed);
  machine.packages = Packages(files, allowed);
  ReadCaches(files, allowed.front(), machine);
  return machine;
}

int CpuQuota(const std::string& root) {
  const KernelFiles files(root);
  const std::string groups = files.Text("/proc/self/cgroup");
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto look = [&](std::string_view controller, std::initializer_list<const char*> mounts) {
    std::string group = GroupOf(groups, controller);
    if (group.empty()) return;
    // In a container, /proc may give the path of the group on the host, but only the container's own group is mounted,
    // as the root. So the last step of the loop reads the root.
    for (;;) {
      while (group.ends_with('/')) group.pop_back();
      for (const char* mount : mounts) least = std::min(least, LimitOf(files, mount + group));
      if (group.empty()) return;
      group.resize(std::min(group.rfind('/'), group.size() - 1));
    }
  };
  look("", {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"});
  look("cpu", {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"});
  return least > kMostCpus ? 0 : static_cast<int>(least);
}

}  // namespace fa::core
