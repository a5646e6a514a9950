// Tests what the doctor finds in invented variables, settings and results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "doctor/findings.h"
#include "doctor/system_facts.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tool::Finding;
using tool::FindSettings;
using tool::FindVariables;
using tool::ReadSystemFacts;
using tool::SystemFacts;

std::vector<std::string> Abouts(const std::vector<Finding>& findings) {
  std::vector<std::string> abouts;
  for (const Finding& finding : findings) abouts.push_back(finding.about);
  return abouts;
}

std::vector<std::string> AboutsOf(const std::map<std::string, std::string>& environment) {
  return Abouts(FindVariables([&](const char* name) -> const char* {
    const auto entry = environment.find(name);
    return entry == environment.end() ? nullptr : entry->second.c_str();
  }));
}

TEST(DoctorFindings, VariablesThatHurt) {
  EXPECT_THAT(AboutsOf({}), IsEmpty());
  for (const char* variable : {"FA_FORCE_ISA=portable",
                               "FA_ASSUME_ISA=avx512_amx",
                               "FA_NUM_THREADS=1",
                               "FA_PORTABLE_BLAS=1",
                               "HWLOC_SYNTHETIC=core:4 pu:1",
                               "HWLOC_XMLFILE=machine.xml",
                               "OMP_PROC_BIND=close",
                               "OMP_PROC_BIND=TRUE",
                               "OMP_PLACES=cores",
                               "GOMP_CPU_AFFINITY=0-3",
                               "KMP_AFFINITY=granularity=fine,compact",
                               "OMP_WAIT_POLICY=ACTIVE",
                               "GOMP_SPINCOUNT=infinity",
                               "KMP_BLOCKTIME=infinite",
                               "OMP_NUM_THREADS=1",
                               "MKL_NUM_THREADS=1",
                               "MKL_ENABLE_INSTRUCTIONS=AVX2",
                               "ONEDNN_MAX_CPU_ISA=AVX2",
                               "ATEN_CPU_CAPABILITY=default",
                               "OPENBLAS_CORETYPE=Haswell"}) {
    const std::string text = variable;
    const size_t equals = text.find('=');
    EXPECT_THAT(AboutsOf({{text.substr(0, equals), text.substr(equals + 1)}}), ElementsAre(text));
  }
}

TEST(DoctorFindings, ValuesThatDoNotHurt) {
  EXPECT_THAT(AboutsOf({{"FA_FORCE_ISA", ""},
                        {"FA_PORTABLE_BLAS", "0"},
                        {"OMP_PROC_BIND", "false"},
                        {"OMP_PLACES", "cores"},
                        {"KMP_AFFINITY", "verbose,none"},
                        {"OMP_WAIT_POLICY", "passive"},
                        {"KMP_BLOCKTIME", "200"},
                        {"OMP_NUM_THREADS", "8"},
                        {"PATH", "/bin"}}),
              IsEmpty());
}

TEST(DoctorFindings, SettingsThatHurt) {
  const SystemFacts good = {.online_cpus = 8,
                            .allowed_cpus = 8,
                            .cpu_limit = 8,
                            .memory_bytes = int64_t{8} << 30,
                            .memory_limit_bytes = int64_t{8} << 30,
                            .transparent_huge_pages = "madvise",
                            .governors = {"performance"},
                            .numa_nodes = 1,
                            .numa_balancing = true};
  EXPECT_THAT(FindSettings(good), IsEmpty());
  EXPECT_THAT(FindSettings({}), IsEmpty());
  const auto with = [&](auto change) {
    SystemFacts facts = good;
    change(facts);
    return FindSettings(facts);
  };
  EXPECT_THAT(Abouts(with([](SystemFacts& facts) {
                facts.governors = {"performance", "powersave"};
              })),
              ElementsAre("governor"));
  EXPECT_THAT(Abouts(with([](SystemFacts& facts) { facts.transparent_huge_pages = "never"; })),
              ElementsAre("huge pages"));
  EXPECT_THAT(Abouts(with([](SystemFacts& facts) { facts.numa_nodes = 2; })), ElementsAre("NUMA balancing"));
  const std::vector<Finding> affinity = with([](SystemFacts& facts) { facts.online_cpus = 16; });
  ASSERT_THAT(Abouts(affinity), ElementsAre("affinity"));
  EXPECT_THAT(affinity[0].text, HasSubstr("8 of 16"));
  const std::vector<Finding> time = with([](SystemFacts& facts) { facts.cpu_limit = 1.5; });
  ASSERT_THAT(Abouts(time), ElementsAre("control group"));
  EXPECT_THAT(time[0].text, HasSubstr("1.5 CPUs"));
  const std::vector<Finding> memory = with([](SystemFacts& facts) { facts.memory_limit_bytes = int64_t{3} << 29; });
  ASSERT_THAT(Abouts(memory), ElementsAre("control group"));
  EXPECT_THAT(memory[0].text, HasSubstr("1.5 GiB"));
}

tool::SelfTestResult Tested(const char* isa) {
  return {.isa = isa, .op = "forward", .dtype = "f32", .peak = "256-bit f32 FMA", .fraction = 0.9};
}

TEST(DoctorFindings, AQuietSelfTestHasNoDoubts) {
  EXPECT_THAT(tool::FindDoubts({Tested("avx2")}, 0.05), IsEmpty());
  EXPECT_THAT(tool::FindDoubts({Tested("avx2")}, std::nullopt), IsEmpty());
}

TEST(DoctorFindings, OtherProgramsAreADoubt) {
  const std::vector<Finding> findings = tool::FindDoubts({Tested("avx2")}, 1.873);
  ASSERT_THAT(Abouts(findings), ElementsAre("load"));
  EXPECT_THAT(findings[0].text, HasSubstr("1.87 CPUs"));
}

TEST(DoctorFindings, WhatHadNoQuietRoundIsADoubt) {
  tool::SelfTestResult busy = Tested("avx2");
  busy.fraction.reset();
  const std::vector<Finding> findings = tool::FindDoubts({Tested("portable"), busy}, 0);
  ASSERT_THAT(Abouts(findings), ElementsAre("self-test"));
  EXPECT_THAT(findings[0].text, HasSubstr("1 of 2"));
}

TEST(DoctorFindings, FasterThanTheUnitCannotBe) {
  tool::SelfTestResult above = Tested("avx2");
  above.fraction.reset();
  above.above_peak = true;
  const std::vector<Finding> findings = tool::FindDoubts({above}, 0);
  ASSERT_THAT(Abouts(findings), ElementsAre("avx2 forward f32"));
  EXPECT_THAT(findings[0].text, HasSubstr("faster than the 256-bit f32 FMA"));
}

TEST(DoctorFindings, WrongResultsAreNamed) {
  const std::vector<Finding> findings =
      tool::FindWrongResults({{.isa = "avx2", .op = "forward", .dtype = "f32"},
                              {.isa = "avx512", .op = "backward", .dtype = "f32", .wrong = "dq[batch 0] = 1, want 2"}});
  ASSERT_THAT(Abouts(findings), ElementsAre("avx512 backward f32"));
  EXPECT_EQ(findings[0].text, "dq[batch 0] = 1, want 2");
}

/// A machine whose /proc and /sys contain only the files that a test writes.
class InventedSystem {
 public:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.Path(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] SystemFacts Facts() const { return ReadSystemFacts(root_.Path("")); }

 private:
  ScratchFolder root_;
};

TEST(DoctorSystem, WithoutFilesNothingIsSaid) {
  const SystemFacts facts = InventedSystem().Facts();
  EXPECT_EQ(facts.online_cpus, 0);
  EXPECT_EQ(facts.memory_bytes, 0);
  EXPECT_FALSE(facts.cpu_limit || facts.memory_limit_bytes);
  EXPECT_EQ(facts.transparent_huge_pages, "");
  EXPECT_THAT(facts.governors, IsEmpty());
  EXPECT_EQ(facts.numa_nodes, 1);
  EXPECT_FALSE(facts.numa_balancing);
}

TEST(DoctorSystem, ReadsTheKernelsFiles) {
  const InventedSystem system;
  system.Write("proc/meminfo", "MemTotal:  1024 kB\nMemAvailable: 512 kB\nHugePages_Total: 7\nHugepagesize: 2048 kB\n");
  system.Write("proc/self/status", "Name: x\nCpus_allowed_list:\t0-1,5\n");
  system.Write("proc/sys/kernel/numa_balancing", "3\n");
  system.Write("sys/devices/system/cpu/online", "0-7\n");
  system.Write("sys/devices/system/node/online", "0-1\n");
  system.Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  for (const char* policy : {"policy0", "policy1"}) {
    system.Write(std::string("sys/devices/system/cpu/cpufreq/") + policy + "/scaling_governor", "schedutil\n");
  }
  const SystemFacts facts = system.Facts();
  EXPECT_EQ(facts.online_cpus, 8);
  EXPECT_EQ(facts.allowed_cpus, 3);
  EXPECT_EQ(facts.memory_bytes, 1024 << 10);
  EXPECT_EQ(facts.available_bytes, 512 << 10);
  EXPECT_EQ(facts.reserved_huge_pages, 7);
  EXPECT_EQ(facts.huge_page_bytes, 2048 << 10);
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_THAT(facts.governors, ElementsAre("schedutil"));
  EXPECT_EQ(facts.numa_nodes, 2);
  EXPECT_TRUE(facts.numa_balancing);
}

TEST(DoctorSystem, TheLeastLimitOfAllGroupsAroundCounts) {
  const InventedSystem system;
  system.Write("proc/self/cgroup", "0::/outer/inner\n");
  system.Write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  system.Write("sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  system.Write("sys/fs/cgroup/outer/inner/memory.max", "4096\n");
  system.Write("sys/fs/cgroup/outer/memory.max", "max\n");
  const SystemFacts facts = system.Facts();
  EXPECT_EQ(facts.cpu_limit, 2.5);
  EXPECT_EQ(facts.memory_limit_bytes, 4096);
}

TEST(DoctorSystem, GroupsOfVersionOne) {
  const InventedSystem system;
  system.Write("proc/self/cgroup", "5:memory:/of/host\n3:cpu,cpuacct:/\n");
  system.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  system.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  system.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
  const SystemFacts facts = system.Facts();
  EXPECT_EQ(facts.cpu_limit, 0.5);
  EXPECT_EQ(facts.memory_limit_bytes, 8192);
}

TEST(DoctorSystem, NoLimitIsNone) {
  const InventedSystem system;
  system.Write("proc/self/cgroup", "5:memory:/\n3:cpu:/\n");
  system.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  system.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  system.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const SystemFacts facts = system.Facts();
  EXPECT_FALSE(facts.cpu_limit);
  EXPECT_FALSE(facts.memory_limit_bytes);
}

}  // namespace
}  // namespace fa::test
