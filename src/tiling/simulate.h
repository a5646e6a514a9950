#ifndef FA_TILING_SIMULATE_H_
#define FA_TILING_SIMULATE_H_

#include <cstdint>
#include <span>

#include "core/task_graph.h"

namespace fa::tiling {

/// The time at which the last task ends when every worker follows the claim rule of core/executor.h and task t takes
/// durations[t]. Tasks that were claimed before they were ready are run, first released first, by whoever is free.
/// Discrete events: O(tasks log workers).
[[nodiscard]] int64_t SimulateMakespan(const core::TaskGraph& graph, std::span<const int64_t> durations);

}  // namespace fa::tiling

#endif  // FA_TILING_SIMULATE_H_
