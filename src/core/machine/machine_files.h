#ifndef FA_CORE_MACHINE_FILES_H_
#define FA_CORE_MACHINE_FILES_H_

#include <string>
#include <vector>

#include "core/machine/topology.h"

namespace fa::core {

/// The machine that the kernel's files below `root` describe ("" for this one), as far as `allowed` reaches: ascending
/// numbers of hardware threads, at least one. Where files are missing, each hardware thread is a core, all are on one
/// node, and caches are the default ones. Throws std::bad_alloc.
[[nodiscard]] Topology ReadMachine(const std::string& root, const std::vector<int>& allowed);

/// CPUs' worth of time that the control groups of this process may use, rounded up, by the files below `root`: the
/// least of its group and all groups around it, of version 1 and version 2. 0 = no limit. Throws std::bad_alloc.
[[nodiscard]] int CpuQuota(const std::string& root);

}  // namespace fa::core

#endif  // FA_CORE_MACHINE_FILES_H_
