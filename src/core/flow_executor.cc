#include "core/flow_executor.h"

#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
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
  /// `home`: the flow that the caller waits in, null for that flow itself. There a slot is kept for the caller; the
  /// slots of the others are all oneTBB's.
  NodeFlow(FlowExecutor& owner, NodeFlow* home, Node node, int first_worker)
      : owner_(owner),
        home_(home),
        first_worker_(first_worker),
        workers_(node.workers),
        arena_(tbb::task_arena::constraints{}.set_numa_id(node.numa_id).set_max_concurrency(node.workers),
               home == nullptr ? 1u : 0u) {
    // The graph spawns its messages into the arena that it is made in.
    arena_.execute([&] {
      graph_.emplace(context_);
      joiners_.emplace(*graph_, tbb::flow::unlimited, Body(*this));
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
    if (home_ != nullptr) home_->graph_->reserve_wait();
    try {
      joiners_->try_put(walkers);
    } catch (...) {
      Retire(walkers);
      if (home_ != nullptr) home_->graph_->release_wait();
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
  /// Takes a message. Tells ThreadSanitizer that it was made, inside oneTBB, before it is called.
  class Body {
   public:
    explicit Body(NodeFlow& flow) : flow_(flow) {}
    Body(const Body& other) : flow_(other.flow_) { TsanRelease(this); }
    void operator()(int32_t walkers) const {
      TsanAcquire(this);
      flow_.owner_.Enter(flow_, walkers);
      // The caller stays at home, to work there, until the walkers of all nodes are done.
      if (flow_.home_ != nullptr) flow_.home_->graph_->release_wait();
    }

   private:
    NodeFlow& flow_;
  };

  FlowExecutor& owner_;
  NodeFlow* home_;
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

FlowExecutor::~FlowExecutor() {
  // A thread's last access is inside oneTBB, where ThreadSanitizer does not see that the end of Run waited for it.
  const TsanIgnore ignore;
  flows_.clear();
}

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

// oneTBB starts no more threads in a process than there are cores, and says so on stderr when asked for more, unless
// somebody allows them. The smallest of all allowances counts: a limit set by the program stays in force.
class FlowExecutor::ThreadAllowance {
 public:
  explicit ThreadAllowance(int workers) {
    constexpr auto kParameter = tbb::global_control::max_allowed_parallelism;
    const size_t wanted = static_cast<size_t>(workers);
    if (tbb::global_control::active_value(kParameter) < wanted) control_.emplace(kParameter, wanted);
  }

 private:
  std::optional<tbb::global_control> control_;
};

void FlowExecutor::Start() {
  if (!flows_.empty()) return;
  allowance_ = std::make_unique<ThreadAllowance>(workers_);
  int first_worker = 0;
  std::vector<std::unique_ptr<NodeFlow>> flows;
  for (const Node& node : nodes_) {
    NodeFlow* home = flows.empty() ? nullptr : flows.front().get();
    flows.push_back(std::make_unique<NodeFlow>(*this, home, node, first_worker));
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
  // No walker is left; what oneTBB still has to tidy up after the last ones.
  for (size_t i = 1; i < flows_.size(); ++i) flows_[i]->Wait();
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
    tasks -= walkers;
    flow->Invite(walkers);
  }
}

}  // namespace fa::core
