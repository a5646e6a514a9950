#include "core/flow_executor.h"

#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/graph_run.h"
#include "core/serial_executor.h"
#include "core/tsan.h"

namespace fa::core {

// What travels through the flow graph is not tasks but walkers: a message n stands for n threads that may still join.
// Whoever takes it sends on two messages for the other n - 1, so that 128 threads wake in 7 steps, and then walks
// until no task is left for it (GraphRun::Walk). Tasks go from hand to hand through ClaimState at the cost of an
// atomic operation or two, against 0.1 to 0.3 us for a message a task, and messages in flight never outnumber the
// workers.
class FlowExecutor::NodeFlow {
 public:
  NodeFlow(FlowExecutor& owner, Node node, int first_worker, unsigned slots_for_callers)
      : first_worker_(first_worker),
        workers_(node.workers),
        arena_(tbb::task_arena::constraints{}.set_numa_id(node.numa_id).set_max_concurrency(node.workers),
               slots_for_callers) {
    // The graph spawns its messages into the arena that it is made in.
    arena_.execute([&] {
      graph_.emplace(context_);
      joiners_.emplace(*graph_, tbb::flow::unlimited, [this, &owner](int32_t walkers) { owner.Enter(*this, walkers); });
    });
  }

  void BeginRun() { idle_.store(workers_, std::memory_order_relaxed); }
  /// Books up to `wanted` walkers of those not on their way; returns how many.
  int TakeIdle(int wanted) {
    int idle = idle_.load(std::memory_order_seq_cst);
    while (idle > 0 && wanted > 0 &&
           !idle_.compare_exchange_weak(idle, idle - std::min(idle, wanted), std::memory_order_seq_cst)) {
    }
    return std::max(0, std::min(idle, wanted));
  }
  void Retire(int walkers) { idle_.fetch_add(walkers, std::memory_order_seq_cst); }

  /// Invites `walkers` threads. Without memory for the message nobody comes; the work is then done by those present.
  void Invite(int walkers) noexcept {
    if (walkers <= 0) return;
    try {
      joiners_->try_put(walkers);
    } catch (...) {
      Retire(walkers);
    }
  }
  template <typename Callable>
  void Execute(Callable&& callable) {
    arena_.execute(callable);
  }
  /// Not given up for want of memory: walkers use the frame of Run.
  void Wait() noexcept {
    for (;;) {
      try {
        graph_->wait_for_all();
        return;
      } catch (...) {
        std::this_thread::yield();
      }
    }
  }

  /// The calling thread's worker number, from inside the arena.
  [[nodiscard]] int Worker() const {
    const int slot = tbb::this_task_arena::current_thread_index();
    assert(slot >= 0 && slot < workers_);
    return first_worker_ + slot;
  }

 private:
  int first_worker_, workers_;
  std::atomic<int> idle_{0};
  tbb::task_arena arena_;
  // Isolated: else the graph would stay bound to the group of tasks that the first Run was called from.
  tbb::task_group_context context_{tbb::task_group_context::isolated};
  std::optional<tbb::flow::graph> graph_;
  std::optional<tbb::flow::function_node<int32_t>> joiners_;
};

FlowExecutor::FlowExecutor(std::vector<Node> nodes) : nodes_(std::move(nodes)) {
  for (const Node& node : nodes_) {
    assert(node.workers >= (nodes_.size() > 1 ? 2 : 1));
    workers_ += node.workers;
  }
}

FlowExecutor::~FlowExecutor() = default;

Status FlowExecutor::Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) {
  if (graph.task_count <= 1 || graph.workers() <= 1 || workers_ <= 1) return RunInOrder(graph, run_task);
  try {
    Start();
    GraphRun run(graph, run_task, state);
    run_ = &run;
    RunParallel(graph);
    return run.TakeStatus();
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("thread arena");
  } catch (const std::exception& error) {
    return Status::Internal(std::string("thread arena: ") + error.what());
  }
}

void FlowExecutor::Start() {
  if (!flows_.empty()) return;
  int first_worker = 0;
  std::vector<std::unique_ptr<NodeFlow>> flows;
  for (const Node& node : nodes_) {
    // The caller works in the first arena, where a slot is kept for it; the others are all their threads' own.
    flows.push_back(std::make_unique<NodeFlow>(*this, node, first_worker, flows.empty() ? 1u : 0u));
    first_worker += node.workers;
  }
  flows_ = std::move(flows);
}

void FlowExecutor::RunParallel(const TaskGraph& graph) {
  for (const auto& flow : flows_) flow->BeginRun();
  TsanRelease(this);
  NodeFlow& home = *flows_.front();
  home.Execute([&] {
    for (size_t i = 1; i < flows_.size(); ++i) flows_[i]->Invite(flows_[i]->TakeIdle(graph.task_count));
    Enter(home, home.TakeIdle(graph.task_count));
    home.Wait();
  });
  if (flows_.size() > 1) {
    // A node may have been invited to by another after its own wait.
    int64_t puts;
    do {
      puts = puts_across_nodes_.load();
      for (const auto& flow : flows_) flow->Wait();
    } while (puts != puts_across_nodes_.load());
  }
  TsanAcquire(this);
}

void FlowExecutor::Enter(NodeFlow& flow, int walkers) noexcept {
  TsanAcquire(this);
  flow.Invite(walkers / 2);
  flow.Invite((walkers - 1) / 2);
  const int worker = flow.Worker();
  do {
    run_->Walk(worker, [&](int queued) { Wake(flow, queued); });
    flow.Retire(1);
    // Between the last look and Retire somebody may have queued tasks and found nobody to wake.
  } while (run_->HasQueued() && flow.TakeIdle(1) == 1);
  TsanRelease(this);
}

void FlowExecutor::Wake(NodeFlow& from, int tasks) noexcept {
  const int own = from.TakeIdle(tasks);
  from.Invite(own);
  tasks -= own;
  for (const auto& flow : flows_) {
    if (flow.get() == &from) continue;
    const int walkers = flow->TakeIdle(tasks);
    if (walkers == 0) continue;
    tasks -= walkers;
    puts_across_nodes_.fetch_add(1);
    flow->Invite(walkers);
  }
}

}  // namespace fa::core
