// Reads descriptions of machines from files such as Linux has on other machines.
#include "core/machine/machine_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/machine/kernel_files.h"

namespace fa::core {
namespace {

namespace fs = std::filesystem;

/// A folder with files as a Linux kernel writes them.
class FakeKernel {
 public:
  FakeKernel() {
    root_ = (fs::temp_directory_path() / "fa_kernel_XXXXXX").string();
    if (mkdtemp(root_.data()) == nullptr) root_.clear();
  }
  ~FakeKernel() {
    std::error_code ignored;
    if (!root_.empty()) fs::remove_all(root_, ignored);
  }
  FakeKernel(const FakeKernel&) = delete;
  FakeKernel& operator=(const FakeKernel&) = delete;

  FakeKernel& Put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
    return *this;
  }
  FakeKernel& Cpu(int cpu, const std::string& siblings, int package) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    Put(folder + "core_cpus_list", siblings);
    return Put(folder + "physical_package_id", std::to_string(package));
  }
  FakeKernel& Cache(int index, int level, const std::string& type, const std::string& size) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    Put(folder + "level", std::to_string(level));
    Put(folder + "type", type);
    return Put(folder + "size", size);
  }
  FakeKernel& Node(int node, const std::string& cpus) {
    return Put("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist", cpus);
  }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
};

std::vector<int> Cpus(int count) {
  std::vector<int> cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

/// Writes the files of two packages, each of two cores with two hardware threads. One node has memory but no
/// processors.
void PutTwoSockets(FakeKernel& kernel) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    const int core = cpu % 4;
    kernel.Cpu(cpu, std::to_string(core) + "," + std::to_string(core + 4), core / 2);
  }
  kernel.Put("/sys/devices/system/node/online", "0-2").Node(0, "0-1,4-5").Node(1, "").Node(2, "2-3,6-7");
  kernel.Cache(0, 1, "Data", "48K").Cache(1, 1, "Instruction", "32K").Cache(2, 2, "Unified", "2M");
  kernel.Cache(3, 3, "Unified", "33792K");
}

TEST(ParseCpuList, TakesNumbersAndRanges) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("7,3-4,3"), (std::vector<int>{3, 4, 7}));
  EXPECT_EQ(ParseCpuList("5"), std::vector<int>{5});
  for (const char* text : {"", "-1", "3-", "3-1", "a", "1;2", "1-2-3", "99999999999", "0-99999", "1,,2"}) {
    EXPECT_TRUE(ParseCpuList(text).empty()) << text;
  }
}

TEST(ReadMachine, KnowsNodesCoresPackagesAndCaches) {
  FakeKernel kernel;
  PutTwoSockets(kernel);
  const Topology machine = ReadMachine(kernel.root(), Cpus(8));
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[0].os_index, 0);
  EXPECT_EQ(machine.nodes[1].os_index, 2);
  EXPECT_EQ(machine.nodes[0].cores, 2);  // hardware threads of a core count once
  EXPECT_EQ(machine.nodes[0].cpus, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(machine.nodes[1].cpus, (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(machine.cores(), 4);
  EXPECT_EQ(machine.packages, 2);
  EXPECT_EQ(machine.l1_bytes, 48 << 10);
  EXPECT_EQ(machine.l2_bytes, 2 << 20);
  EXPECT_EQ(machine.l3_bytes, 33792 << 10);
}

TEST(ReadMachine, KeepsToTheAllowedHardwareThreads) {
  FakeKernel kernel;
  PutTwoSockets(kernel);
  const Topology machine = ReadMachine(kernel.root(), {2, 6, 7});
  ASSERT_EQ(machine.nodes.size(), 1u);
  EXPECT_EQ(machine.nodes[0].os_index, 2);
  EXPECT_EQ(machine.nodes[0].cpus, (std::vector<int>{2, 6, 7}));
  EXPECT_EQ(machine.cores(), 2);
  EXPECT_EQ(machine.packages, 1);
}

TEST(ReadMachine, IsOneNodeOfCoresWhereTheFilesAreMissing) {
  const FakeKernel kernel;
  const Topology machine = ReadMachine(kernel.root(), Cpus(3));
  ASSERT_EQ(machine.nodes.size(), 1u);
  EXPECT_EQ(machine.cores(), 3);
  EXPECT_EQ(machine.packages, 1);
  EXPECT_EQ(machine.l1_bytes, 0);
}

// The files are damaged: nodes overlap, and some entries are not numbers.
TEST(ReadMachine, CountsEachHardwareThreadOnce) {
  FakeKernel kernel;
  kernel.Put("/sys/devices/system/node/online", "0-1").Node(0, "0-2").Node(1, "1-3");
  kernel.Cpu(0, "x", 0).Cache(0, 1, "Data", "-5K").Cache(1, 2, "Unified", "big");
  const Topology machine = ReadMachine(kernel.root(), Cpus(4));
  ASSERT_EQ(machine.nodes.size(), 2u);
  EXPECT_EQ(machine.nodes[0].cpus, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(machine.nodes[1].cpus, std::vector<int>{3});
  EXPECT_EQ(machine.cores(), 4);
  EXPECT_EQ(machine.l1_bytes, 0);
  EXPECT_EQ(machine.l2_bytes, 0);
}

TEST(CpuQuota, IsNoneWithoutControlGroups) { EXPECT_EQ(CpuQuota(FakeKernel().root()), 0); }

TEST(CpuQuota, OfVersion2IsTheLeastOnTheWayUp) {
  FakeKernel kernel;
  kernel.Put("/proc/self/cgroup", "0::/outer/inner").Put("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  EXPECT_EQ(CpuQuota(kernel.root()), 0);
  kernel.Put("/sys/fs/cgroup/outer/cpu.max", "250000 100000");
  EXPECT_EQ(CpuQuota(kernel.root()), 3);
  kernel.Put("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000");
  EXPECT_EQ(CpuQuota(kernel.root()), 1);
}

TEST(CpuQuota, OfVersion1IsThatOfTheCpuController) {
  FakeKernel kernel;
  kernel.Put("/proc/self/cgroup", "5:cpuset:/set\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/");
  kernel.Put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000");
  kernel.Put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  kernel.Put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1");
  kernel.Put("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CpuQuota(kernel.root()), 4);
}

// In Docker with cgroup version 1, /proc/self/cgroup names a path of the host. Inside the container, the container's
// own group is mounted as the root.
TEST(CpuQuota, IsFoundAtTheRootOfAContainer) {
  FakeKernel kernel;
  kernel.Put("/proc/self/cgroup", "3:cpu:/docker/0123/");
  kernel.Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
  kernel.Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CpuQuota(kernel.root()), 2);
}

TEST(CpuQuota, IgnoresDamagedFiles) {
  for (const char* text : {"", "100000", "-5 100000", "100000 0", "x y", "max", "9223372036854775807 1"}) {
    FakeKernel kernel;
    kernel.Put("/proc/self/cgroup", "0::/").Put("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(CpuQuota(kernel.root()), 0) << text;
  }
  for (const char* text : {"", "::", "0::", "a:b", ":::::", "4:cpu:", "0::relative"}) {
    FakeKernel kernel;
    kernel.Put("/proc/self/cgroup", text);
    EXPECT_EQ(CpuQuota(kernel.root()), 0) << text;
  }
}

TEST(Topology, WorkersAreThoseThatTheControlGroupsGrantTimeFor) {
  Topology machine;
  machine.nodes = {{.os_index = 0, .cores = 8}};
  EXPECT_EQ(machine.default_workers(), 8);
  machine.cpu_quota = 3;
  EXPECT_EQ(machine.default_workers(), 3);
  machine.cpu_quota = 30;
  EXPECT_EQ(machine.default_workers(), 8);
}

}  // namespace
}  // namespace fa::core
