#ifndef FA_CORE_MACHINE_FILES_H_
#define FA_CORE_MACHINE_FILES_H_

#include <string>
#include <vector>

#include "core/machine/topology.h"

namespace fa::core {

/// Reads the machine that the files of Linux below `root` describe; an empty `root` stands for this machine. The result
/// has only the hardware threads in `allowed`, which are ascending and not empty. Without the files, each hardware
/// thread is a core, all are on one node, and caches have default sizes. Throws std::bad_alloc.
[[nodiscard]] Topology ReadMachine(const std::string& root, const std::vector<int>& allowed);

/// Returns how many CPUs the control groups of this process allow, rounded up, or 0 for no limit. The files of Linux
/// lie below `root`. The result is the smallest limit among the process's group and all groups that contain it, in
/// versions 1 and 2. Throws std::bad_alloc.
[[nodiscard]] int CpuQuota(const std::string& root);

}  // namespace fa::core

#endif  // FA_CORE_MACHINE_FILES_H_
