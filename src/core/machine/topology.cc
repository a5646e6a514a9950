#include "core/machine/topology.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/machine/affinity.h"
#include "core/machine/machine_files.h"

namespace fa::core {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

// The smallest caches of current server cores, for machines that do not report their cache sizes.
constexpr int64_t kDefaultL1Bytes = 32 << 10;
constexpr int64_t kDefaultL2Bytes = 1 << 20;

HwlocTopology NewHwlocTopology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  return HwlocTopology(topology);
}

int64_t CacheBytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache == nullptr ? 0 : static_cast<int64_t>(cache->attr->cache.size);
}

// Returns the first node whose processors include the core. So a node of high-bandwidth memory gets no cores that also
// belong to a DRAM node before it.
int NodeOfCore(const std::vector<hwloc_obj_t>& nodes, hwloc_obj_t core) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (hwloc_bitmap_intersects(nodes[i]->cpuset, core->cpuset) != 0) return static_cast<int>(i);
  }
  return 0;
}

Topology Describe(hwloc_topology_t topology) {
  Topology result;
  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back(node);
    result.nodes.push_back({.os_index = static_cast<int>(node->os_index)});
  }
  if (result.nodes.empty()) result.nodes.emplace_back();

  const hwloc_obj_type_t core_type =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, core_type, core)) != nullptr;) {
    ++result.nodes[static_cast<size_t>(NodeOfCore(nodes, core))].cores;
  }
  std::erase_if(result.nodes, [](const Topology::Node& node) { return node.cores == 0; });
  if (result.nodes.empty()) result.nodes.push_back({.os_index = 0, .cores = 1});

  result.packages = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  result.l1_bytes = CacheBytes(topology, HWLOC_OBJ_L1CACHE);
  result.l2_bytes = CacheBytes(topology, HWLOC_OBJ_L2CACHE);
  result.l3_bytes = CacheBytes(topology, HWLOC_OBJ_L3CACHE);
  return result;
}

Topology WithDefaultCaches(Topology topology) {
  if (topology.l1_bytes == 0) topology.l1_bytes = kDefaultL1Bytes;
  if (topology.l2_bytes == 0) topology.l2_bytes = kDefaultL2Bytes;
  return topology;
}

// Asks the C library for cache sizes that the files of Linux lack. A hypervisor may hide caches from these files, but
// the C library asks the CPU itself.
void AskForMissingCaches(Topology& topology) {
  const auto ask = [](int64_t& bytes, int name) {
    if (bytes == 0) bytes = std::max(int64_t{0}, int64_t{sysconf(name)});
  };
  ask(topology.l1_bytes, _SC_LEVEL1_DCACHE_SIZE);
  ask(topology.l2_bytes, _SC_LEVEL2_CACHE_SIZE);
  ask(topology.l3_bytes, _SC_LEVEL3_CACHE_SIZE);
}

bool MachineIsInvented() {
  return std::getenv("HWLOC_SYNTHETIC") != nullptr || std::getenv("HWLOC_XMLFILE") != nullptr;
}

}  // namespace

int Topology::cores() const {
  int total = 0;
  for (const Node& node : nodes) total += node.cores;
  return total;
}

int Topology::default_workers() const { return cpu_quota == 0 ? cores() : std::min(cores(), cpu_quota); }

// For this machine, the function reads the files of Linux and does not use hwloc, because hwloc 2.9 ends the process if
// there is no memory.
Topology Topology::Detect() {
  if (MachineIsInvented()) {
    const HwlocTopology invented = NewHwlocTopology();
    if (invented != nullptr && hwloc_topology_load(invented.get()) == 0) {
      return WithDefaultCaches(core::Describe(invented.get()));
    }
  }
  Topology machine = ReadMachine("", AllowedCpus());
  machine.cpu_quota = CpuQuota("");
  AskForMissingCaches(machine);
  return WithDefaultCaches(std::move(machine));
}

Result<Topology> Topology::FromSynthetic(const std::string& description) {
  const HwlocTopology topology = NewHwlocTopology();
  if (topology == nullptr) return Status::OutOfMemory("hwloc topology");
  if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return Status::InvalidArgument("topology=\"" + description + "\", want hwloc's synthetic notation");
  }
  return WithDefaultCaches(core::Describe(topology.get()));
}

}  // namespace fa::core
