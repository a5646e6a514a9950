#include "core/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <type_traits>

namespace fa::core {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;
using HwlocBitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

// Sizes of the smallest caches among current server cores, for machines that hide theirs.
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

// The first node whose processors include the core. Memory-only nodes, and high-bandwidth nodes whose cores belong to a
// DRAM node, are left without cores and are dropped.
int NodeOfCore(const std::vector<hwloc_obj_t>& nodes, hwloc_obj_t core) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (hwloc_bitmap_intersects(nodes[i]->cpuset, core->cpuset) != 0) return static_cast<int>(i);
  }
  return 0;
}

Topology Describe(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  Topology result;
  std::vector<hwloc_obj_t> nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    nodes.push_back(node);
    result.nodes.push_back({static_cast<int>(node->os_index), static_cast<int>(node->logical_index), 0});
  }
  if (result.nodes.empty()) result.nodes.emplace_back();

  const hwloc_obj_type_t core_type =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, core_type, core)) != nullptr;) {
    if (allowed != nullptr && hwloc_bitmap_intersects(core->cpuset, allowed) == 0) continue;
    ++result.nodes[static_cast<size_t>(NodeOfCore(nodes, core))].cores;
  }
  std::erase_if(result.nodes, [](const Topology::Node& node) { return node.cores == 0; });
  if (result.nodes.empty()) result.nodes.push_back({0, 0, 1});

  result.packages = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  result.l1_bytes = CacheBytes(topology, HWLOC_OBJ_L1CACHE);
  result.l2_bytes = CacheBytes(topology, HWLOC_OBJ_L2CACHE);
  result.l3_bytes = CacheBytes(topology, HWLOC_OBJ_L3CACHE);
  if (result.l1_bytes == 0) result.l1_bytes = kDefaultL1Bytes;
  if (result.l2_bytes == 0) result.l2_bytes = kDefaultL2Bytes;
  return result;
}

Topology WithoutHwloc() {
  Topology result;
  result.nodes.push_back({0, 0, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))});
  result.l1_bytes = kDefaultL1Bytes;
  result.l2_bytes = kDefaultL2Bytes;
  return result;
}

}  // namespace

int Topology::cores() const {
  int total = 0;
  for (const Node& node : nodes) total += node.cores;
  return total;
}

Topology Topology::Detect() {
  const HwlocTopology topology = NewHwlocTopology();
  if (topology == nullptr || hwloc_topology_load(topology.get()) != 0) return WithoutHwloc();
  const HwlocBitmap allowed(hwloc_bitmap_alloc());
  const bool bound = allowed != nullptr && hwloc_get_cpubind(topology.get(), allowed.get(), HWLOC_CPUBIND_PROCESS) == 0;
  return core::Describe(topology.get(), bound ? allowed.get() : nullptr);
}

Result<Topology> Topology::FromSynthetic(const std::string& description) {
  const HwlocTopology topology = NewHwlocTopology();
  if (topology == nullptr) return Status::OutOfMemory("hwloc topology");
  if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return Status::InvalidArgument("topology=\"" + description + "\", want hwloc's synthetic notation");
  }
  return core::Describe(topology.get(), nullptr);
}

}  // namespace fa::core
