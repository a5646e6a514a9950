#ifndef FA_CORE_TOPOLOGY_H_
#define FA_CORE_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fa/status.h"

namespace fa::core {

/// The part of a machine that this process may use, as plain data.
struct Topology {
  struct Node {
    int os_index = 0;
    int cores = 0;
    std::vector<int> cpus = {};  ///< hardware threads, ascending; empty on an invented machine
  };
  std::vector<Node> nodes;  ///< NUMA nodes with at least one usable core; never empty
  int packages = 1;
  int cpu_quota = 0;  ///< how many CPUs the control groups of the process allow, rounded up; 0: no limit
  /// Sizes of one cache of each level in bytes; 0 if there is no such cache.
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;

  /// Returns the number of cores with at least one hardware thread in the affinity mask. Two threads of a core share
  /// the core's FMA units, so they count once.
  [[nodiscard]] int cores() const;

  /// Returns the number of workers of a context whose options give no number: one per core, but at most cpu_quota.
  [[nodiscard]] int default_workers() const;

  /// Returns the part of this machine that the calling thread's affinity mask allows, as the files of Linux describe
  /// it. If the variable HWLOC_SYNTHETIC or HWLOC_XMLFILE is set, hwloc describes an invented machine instead. hwloc
  /// does not survive a lack of memory (docs/reliability.md). Throws std::bad_alloc.
  [[nodiscard]] static Topology Detect();
  /// Returns an invented machine in hwloc's notation, such as "numa:2 core:64 pu:1". This process may use all of it.
  /// @return the machine, or an error kInvalidArgument
  [[nodiscard]] static Result<Topology> FromSynthetic(const std::string& description);
};

/// Returns the node of worker `worker` if `workers` workers are spread over `nodes` nodes in contiguous, equal shares.
[[nodiscard]] constexpr int NodeOfWorker(int worker, int workers, int nodes) {
  return static_cast<int>(int64_t{worker} * nodes / workers);
}

}  // namespace fa::core

#endif  // FA_CORE_TOPOLOGY_H_
