#include "core/machine/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace fa::core {
namespace {

TEST(Topology, ReadsASyntheticMachineOfTwoNodes) {
  const Result<Topology> topology =
      Topology::FromSynthetic("package:2 numa:1 l3:1(size=33554432) core:64 l2:1(size=2097152) l1:1(size=49152) pu:2");
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  ASSERT_EQ(topology->nodes.size(), 2u);
  EXPECT_EQ(topology->nodes[0].cores, 64);
  EXPECT_EQ(topology->nodes[1].cores, 64);
  EXPECT_EQ(topology->nodes[0].os_index, 0);
  EXPECT_EQ(topology->nodes[1].os_index, 1);
  EXPECT_TRUE(topology->nodes[0].cpus.empty());
  EXPECT_EQ(topology->cores(), 128);  // two hardware threads of a core count once
  EXPECT_EQ(topology->packages, 2);
  EXPECT_EQ(topology->l1_bytes, 48 << 10);
  EXPECT_EQ(topology->l2_bytes, 2 << 20);
  EXPECT_EQ(topology->l3_bytes, 32 << 20);
}

TEST(Topology, AssumesCachesWhereAMachineNamesNone) {
  const Result<Topology> topology = Topology::FromSynthetic("numa:2 core:64 pu:1");
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_EQ(topology->cores(), 128);
  EXPECT_EQ(topology->l1_bytes, 32 << 10);
  EXPECT_EQ(topology->l2_bytes, 1 << 20);
  EXPECT_EQ(topology->l3_bytes, 0);
}

TEST(Topology, RefusesADescriptionThatIsNone) {
  const Result<Topology> topology = Topology::FromSynthetic("two sockets");
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(topology.status().message().find("topology=\"two sockets\""), std::string::npos);
}

TEST(Topology, ThisMachineHasANodeACoreAndCaches) {
  const Topology topology = Topology::Detect();
  ASSERT_FALSE(topology.nodes.empty());
  for (const Topology::Node& node : topology.nodes) EXPECT_GT(node.cores, 0);
  EXPECT_LE(topology.cores(), CPU_SETSIZE);
  EXPECT_GE(topology.l1_bytes, 8 << 10);
  EXPECT_GE(topology.l2_bytes, topology.l1_bytes);
}

TEST(Topology, AgreesWithHwlocAboutThisMachine) {
  hwloc_topology_t hwloc = nullptr;
  ASSERT_EQ(hwloc_topology_init(&hwloc), 0);
  ASSERT_EQ(hwloc_topology_load(hwloc), 0);
  const hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
  ASSERT_EQ(hwloc_get_cpubind(hwloc, allowed, HWLOC_CPUBIND_THREAD), 0);
  const auto usable = [&](hwloc_obj_type_t type) {
    int count = 0;
    for (hwloc_obj_t part = nullptr; (part = hwloc_get_next_obj_by_type(hwloc, type, part)) != nullptr;) {
      count += hwloc_bitmap_intersects(part->cpuset, allowed);
    }
    return count;
  };
  const auto cache = [&](hwloc_obj_type_t type) {
    const hwloc_obj_t first = hwloc_get_obj_by_type(hwloc, type, 0);
    return first == nullptr ? int64_t{-1} : static_cast<int64_t>(first->attr->cache.size);
  };
  const Topology topology = Topology::Detect();
  EXPECT_EQ(topology.cores(), usable(HWLOC_OBJ_CORE));
  EXPECT_EQ(std::ssize(topology.nodes), usable(HWLOC_OBJ_NUMANODE));
  EXPECT_EQ(topology.packages, usable(HWLOC_OBJ_PACKAGE));
  for (const auto& [bytes, type] : {std::pair(topology.l1_bytes, HWLOC_OBJ_L1CACHE),
                                    {topology.l2_bytes, HWLOC_OBJ_L2CACHE},
                                    {topology.l3_bytes, HWLOC_OBJ_L3CACHE}}) {
    if (cache(type) >= 0) {
      EXPECT_EQ(bytes, cache(type)) << hwloc_obj_type_string(type);
    }
  }
  hwloc_bitmap_free(allowed);
  hwloc_topology_destroy(hwloc);
}

TEST(Topology, CountsTheCoresOfTheAffinityMaskOnly) {
  // The mask is changed in a child process, which has a single thread.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) _exit(100);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0) _exit(101);
    _exit(Topology::Detect().cores());
  }
  int exit_status = 0;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  ASSERT_TRUE(WIFEXITED(exit_status));
  EXPECT_EQ(WEXITSTATUS(exit_status), 1);
}

TEST(NodeOfWorker, SpreadsWorkersEvenlyAndContiguously) {
  for (int workers = 1; workers <= 40; ++workers) {
    for (int nodes = 1; nodes <= workers; ++nodes) {
      std::vector<int> on_node(static_cast<size_t>(nodes), 0);
      int last = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const int node = NodeOfWorker(worker, workers, nodes);
        ASSERT_TRUE(node == last || node == last + 1);
        ++on_node[static_cast<size_t>(node)];
        last = node;
      }
      for (int n : on_node) EXPECT_TRUE(n == workers / nodes || n == (workers + nodes - 1) / nodes);
    }
  }
}

}  // namespace
}  // namespace fa::core
