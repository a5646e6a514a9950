#ifndef FA_CORE_FLOW_EXECUTOR_H_
#define FA_CORE_FLOW_EXECUTOR_H_

#include <memory>
#include <optional>
#include <vector>

#include "core/run/executor.h"

namespace fa::core {

class GraphRun;
class ThreadAllowance;

/// Runs task graphs on oneTBB, one Run at a time. For each NUMA node there is one long-lived tbb::flow::graph, which
/// has a single node, in a tbb::task_arena of its own. A graph of one task and a plan for one worker run on the caller
/// without oneTBB. So does every graph on an executor of one worker. An executor may have more workers than there are
/// cores. Arenas are made by the first Run that needs them. Idle threads sleep.
///
/// Run never waits for a thread to come: if oneTBB has none, the caller runs every task. If the program shares its
/// OpenMP threads (OpenMpTeam), an executor of one NUMA node runs on those threads, and Run waits for them.
class FlowExecutor final : public Executor {
 public:
  struct Node {
    int workers = 1;
    std::vector<int> cpus = {};  ///< hardware threads to which the node's workers are bound while they work; empty: all
  };
  /// The largest number of workers of an executor. An arena keeps about 256 bytes per thread slot. No machine has
  /// nearly 65536 threads, so a larger number is a mistake.
  static constexpr int kMaxWorkers = 1 << 16;

  /// Workers are numbered through all nodes, in the order of `nodes`. If there are several nodes, each node has at
  /// least two workers.
  explicit FlowExecutor(std::vector<Node> nodes);
  ~FlowExecutor() override;

  [[nodiscard]] Status Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) override;
  [[nodiscard]] Status RunWithArrivals(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                       Arrivals& arrivals) override;
  [[nodiscard]] int workers() const override { return workers_; }

 private:
  class NodeFlow;

  [[nodiscard]] std::optional<Status> RunOnThreads(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                                   Arrivals* arrivals);
  void Start();
  void RunParallel(const TaskGraph& graph);
  void Walk(NodeFlow& flow) noexcept;
  void WalkAndPoll(NodeFlow& home) noexcept;
  void Wake(NodeFlow& from, int tasks) noexcept;

  std::vector<Node> nodes_;
  int workers_ = 0;
  std::unique_ptr<ThreadAllowance> allowance_;
  std::vector<std::unique_ptr<NodeFlow>> flows_;
  GraphRun* run_ = nullptr;
};

}  // namespace fa::core

#endif  // FA_CORE_FLOW_EXECUTOR_H_
