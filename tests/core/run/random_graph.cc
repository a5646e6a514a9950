#include "core/run/random_graph.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/machine/topology.h"

namespace fa::test {

core::TaskGraph FlatGraph(int32_t tasks, int workers) {
  core::TaskGraph graph;
  graph.task_count = tasks;
  for (int c = 0; c <= workers; ++c) graph.range_begin.push_back(int64_t{tasks} * c / workers);
  return graph;
}

void AddEdges(core::TaskGraph& graph, std::vector<std::pair<int32_t, int32_t>> edges) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  if (edges.empty()) return;
  const size_t tasks = static_cast<size_t>(graph.task_count);
  graph.predecessor_count.assign(tasks, 0);
  graph.successor_begin.assign(tasks + 1, 0);
  for (const auto& [before, after] : edges) {
    ++graph.predecessor_count[static_cast<size_t>(after)];
    ++graph.successor_begin[static_cast<size_t>(before) + 1];
    graph.successors.push_back(after);
  }
  std::partial_sum(graph.successor_begin.begin(), graph.successor_begin.end(), graph.successor_begin.begin());
}

core::TaskGraph RandomGraph(uint64_t seed, int32_t tasks, int workers, int nodes) {
  std::mt19937_64 random(seed);
  core::TaskGraph graph;
  graph.task_count = tasks;
  graph.order.resize(static_cast<size_t>(tasks));
  std::iota(graph.order.begin(), graph.order.end(), 0);
  std::shuffle(graph.order.begin(), graph.order.end(), random);

  graph.range_begin = {0, tasks};
  for (int c = 1; c < workers; ++c) graph.range_begin.push_back(static_cast<int64_t>(random() % (tasks + 1u)));
  std::sort(graph.range_begin.begin(), graph.range_begin.end());
  for (int c = 0; nodes > 1 && c < workers; ++c) {
    graph.range_node.push_back(static_cast<int16_t>(core::NodeOfWorker(c, workers, nodes)));
  }

  std::vector<std::pair<int32_t, int32_t>> edges;
  for (uint32_t p = 1; p < static_cast<uint32_t>(tasks); ++p) {
    for (uint64_t n = random() % 4; n > 0; --n) edges.emplace_back(graph.order[random() % p], graph.order[p]);
    if (random() % 32 != 0) continue;
    const uint32_t end = std::min<uint32_t>(static_cast<uint32_t>(tasks), p + 20);
    for (uint32_t freed = p + 1; freed < end; ++freed) edges.emplace_back(graph.order[p], graph.order[freed]);
  }
  AddEdges(graph, std::move(edges));
  return graph;
}

}  // namespace fa::test
