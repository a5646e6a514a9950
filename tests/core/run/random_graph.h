#ifndef FA_TESTS_CORE_RUN_RANDOM_GRAPH_H_
#define FA_TESTS_CORE_RUN_RANDOM_GRAPH_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/run/executor.h"
#include "core/task_graph.h"

namespace fa::test {

/// Returns `tasks` tasks without edges, in contiguous ranges of nearly equal size.
core::TaskGraph FlatGraph(int32_t tasks, int workers);

/// Adds edges. In each pair, the second task waits for the first, which comes earlier in the claim order.
void AddEdges(core::TaskGraph& graph, std::vector<std::pair<int32_t, int32_t>> edges);

/// Returns a random graph. Ids and the claim order are shuffled, and ranges are uneven, some of them empty. Tasks have
/// up to 3 predecessors, and sometimes one task frees many at once.
core::TaskGraph RandomGraph(uint64_t seed, int32_t tasks, int workers, int nodes = 1);

/// Memory for the run state of one graph.
class StateMemory {
 public:
  explicit StateMemory(const core::TaskGraph& graph)
      : block_(static_cast<std::byte*>(std::aligned_alloc(64, (core::RunStateBytes(graph) / 64 + 1) * 64))) {}
  [[nodiscard]] std::byte* get() const { return block_.get(); }

 private:
  struct Free {
    void operator()(std::byte* block) const { std::free(block); }
  };
  std::unique_ptr<std::byte, Free> block_;
};

}  // namespace fa::test

#endif  // FA_TESTS_CORE_RUN_RANDOM_GRAPH_H_
