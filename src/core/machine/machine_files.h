#ifndef FA_CORE_MACHINE_FILES_H_
#define FA_CORE_MACHINE_FILES_H_

#include <string>
#include <vector>

#include "core/machine/topology.h"

namespace fa::core {

/// Reads the machine that the files of Linux below `root` describe; "" stands for this machine. Only the hardware
/// threads `allowed`, which are ascending and not empty, are in the result. Without the files, each hardware thread is
/// a core, all are on one node, and caches have default sizes. Throws std::bad_alloc.
[[nodiscard]] Topology ReadMachine(const std::string& root, const std::vector<int>& allowed);

/// The CPUs' worth of time that the control groups of this process may use, rounded up, by the files below `root`. It
/// is the least number of the process's group and all groups around it, in versions 1 and 2. 0 means no limit. Throws
/// std::bad_alloc.
[[nodiscard]] int CpuQuota(const std::string& root);

}  // namespace fa::core

#endif  // FA_CORE_MACHINE_FILES_H_
