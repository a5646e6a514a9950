#include "core/run/flow_executor.h"

#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/machine/affinity.h"
#include "core/run/graph_run.h"
#include "core/run/guarded_call.h"
#include "core/run/openmp_team.h"
#include "core/run/scheduler.h"
#include "core/run/serial_executor.h"
#include "core/run/thread_allowance.h"
#include "core/tsan.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace fa::core {

// A message of the flow graph carries no task. It wakes a thread, which becomes a walker: the thread takes tasks from
// ClaimState until none is left for it (GraphRun::Walk). That costs one or two atomic operations per task, less than a
// message per task.
//
// The caller can run every task by itself. Nothing may wait for a message to be delivered, because oneTBB may have no
// thread for an arena. For example, the program's own tasks may keep all threads busy. So a thread that a message has
// woken may walk only if it gets a place. One atomic word per node counts the places. A place is first offered, and
// then taken by a thread that a message has reached. A walker that finds no more tasks takes back the places on offer.
// A message that arrives later, in this run or the next, finds no place and ends. The caller waits in its home graph
// until walkers have left all places that they took on other nodes. The home graph also delivers the messages of its
// own node.
class FlowExecutor::NodeFlow {
 public:
  /// `home` is the flow in which the caller waits, or null if this flow is the home flow. The home flow has a slot for
  /// the caller. Each other arena has one slot more, for the thread that destroys the arena and receives its last
  /// messages.
  NodeFlow(FlowExecutor& owner, NodeFlow* home, const Node& node, int first_worker)
      : owner_(owner),
        home_(home),
        first_worker_(first_worker - (home == nullptr ? 0 : 1)),
        workers_(node.workers),
        cpus_(node.cpus),
        arena_(node.workers + (home == nullptr ? 0 : 1), 1U) {}
  /// Makes the flow graph. Call Start once, before any other member. If Start throws, the library has given up oneTBB,
  /// and the flow must not be destroyed.
  void Start() {
    AskScheduler([&] {
      // The graph sends its messages into the arena in which it is made.
      arena_.execute([&] {
        graph_.emplace(context_);
        joiners_.emplace(*graph_, tbb::flow::unlimited, Body(*this));
      });
    });
  }

  /// Offers up to `wanted` of the free places to further threads, and sends messages for them. Returns the number of
  /// offered places.
  int Invite(int wanted) noexcept {
    if (SchedulerGivenUp()) return 0;
    int offered = 0, knocks = 0, held = 0;
    Change([&](Places& places) {
      offered = std::max(0, std::min(wanted, workers_ - places.offered - places.taken));
      // Each reservation keeps the caller waiting in its home graph until the place on the other node is left or taken
      // back.
      for (; home_ != nullptr && held < offered; ++held) home_->graph_->reserve_wait();
      places.offered += offered;
      knocks = Knocks(places);
      return offered > 0;
    });
    for (; held > offered; --held) home_->graph_->release_wait();
    if (offered > 0) Knock(knocks);
    return std::max(0, offered);
  }
  /// Takes a place for the calling thread, if the offered and the taken places leave one free. Returns false if none is
  /// free.
  bool Join() noexcept {
    bool joined = false;
    Change([&](Places& places) {
      joined = places.offered + places.taken < workers_;
      ++places.taken;
      return joined;
    });
    return joined;
  }
  void Leave() noexcept {
    Change([](Places& places) {
      --places.taken;
      return true;
    });
  }
  /// Withdraws the offers of places that no thread has taken yet. Returns the number of these places.
  int TakeBack() noexcept {
    int offered = 0;
    Change([&](Places& places) { return (offered = std::exchange(places.offered, 0)) > 0; });
    for (int held = home_ == nullptr ? 0 : offered; held > 0; --held) home_->graph_->release_wait();
    return offered;
  }

  /// Waits, without oneTBB, until no thread of any node can join the run any more. Call it on the home flow after the
  /// caller has walked. A guest is a thread that a message has reached. A thread that offers places stays a guest until
  /// it has taken its offers back. So if there are no guests, there are no offers.
  void WaitForGuests() const noexcept {
    while (guests_.load(std::memory_order_seq_cst) > 0) std::this_thread::yield();
  }

  template <typename Callable>
  void Execute(Callable&& callable) {
    arena_.execute(callable);
  }
  /// Waits until no message is under way. An exception for lack of memory must not end this wait, because walkers still
  /// use variables of Run.
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

  [[nodiscard]] std::span<const int> cpus() const { return cpus_; }
  /// Returns the worker number of the calling thread, which must be inside the arena.
  [[nodiscard]] int Worker() const {
    const int slot = tbb::this_task_arena::current_thread_index();
    assert(slot >= (home_ == nullptr ? 0 : 1) && slot < workers_ + (home_ == nullptr ? 0 : 1));
    return first_worker_ + slot;
  }

 private:
  /// Counts the places of a node and the messages for them. Each count has 21 bits of one word, so that the counts
  /// change together.
  struct Places {
    int offered, taken, messages;
  };
  static constexpr int kBits = 21;
  static_assert(kMaxWorkers < 1 << kBits);
  static constexpr Places Unpack(uint64_t word) {
    constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    return {static_cast<int>(word & kMask), static_cast<int>(word >> kBits & kMask),
            static_cast<int>(word >> (2 * kBits))};
  }
  static constexpr uint64_t Pack(Places places) {
    return static_cast<uint64_t>(places.offered) | static_cast<uint64_t>(places.taken) << kBits |
           static_cast<uint64_t>(places.messages) << (2 * kBits);
  }
  /// Calls `change(places)` and stores the changed places. Tries again if another thread has changed the word
  /// meanwhile. If `change` returns false, nothing is stored.
  template <typename Callable>
  void Change(const Callable& change) noexcept {
    // The memory order is sequentially consistent, as for ClaimState's queues. So when a thread leaves its place while
    // another queues a task, at least one of them sees what the other has done.
    uint64_t word = places_.load(std::memory_order_seq_cst);
    for (;;) {
      Places places = Unpack(word);
      if (!change(places)) return;
      if (places_.compare_exchange_weak(word, Pack(places), std::memory_order_seq_cst)) return;
    }
  }

  /// Counts the messages that are to be sent for the places on offer, and returns their number. At most two messages
  /// are under way at a time. Each thread that arrives sends more, so 128 threads wake in 7 steps.
  static int Knocks(Places& places) {
    const int knocks = std::max(0, std::min(2, places.offered) - places.messages);
    places.messages += knocks;
    return knocks;
  }
  /// Sends `knocks` messages. If there is no memory for a message, no thread comes, and the threads that are there do
  /// the work.
  void Knock(int knocks) noexcept {
    while (knocks > 0 && Send()) --knocks;
    if (knocks == 0) return;
    Change([&](Places& places) {
      places.messages = std::max(0, places.messages - knocks);
      return true;
    });
  }
  /// Sends a message. Even if the result is false, the message may have been sent.
  bool Send() noexcept {
    if (SchedulerGivenUp()) return false;
    try {
      AskScheduler([&] { joiners_->try_put({}); });
      return true;
    } catch (...) {
      return false;
    }
  }
  /// Counts a message that has arrived. Returns true if the message takes a place.
  bool Answer() noexcept {
    bool takes = false;
    int knocks = 0;
    Change([&](Places& places) {
      places.messages = std::max(0, places.messages - 1);
      takes = places.offered > 0;
      places.offered -= takes ? 1 : 0;
      places.taken += takes ? 1 : 0;
      knocks = Knocks(places);
      return true;
    });
    Knock(knocks);
    return takes;
  }

  /// Receives messages. oneTBB copies a Body and then calls the copy, which tells ThreadSanitizer that the copying came
  /// first.
  class Body {
   public:
    explicit Body(NodeFlow& flow) : flow_(flow) {}
    Body(const Body& other) : flow_(other.flow_) { TsanRelease(this); }
    void operator()(tbb::flow::continue_msg /*knock*/) const {
      TsanAcquire(this);
      // A thread counts as a guest before it looks for a place. So if there are no guests, no thread has a place that
      // it got by a message.
      std::atomic<int>& guests = (flow_.home_ == nullptr ? flow_ : *flow_.home_).guests_;
      guests.fetch_add(1, std::memory_order_seq_cst);
      const bool takes = flow_.Answer();
      if (takes) flow_.owner_.Walk(flow_);
      guests.fetch_sub(1, std::memory_order_seq_cst);
      if (takes && flow_.home_ != nullptr) flow_.home_->graph_->release_wait();
    }

   private:
    NodeFlow& flow_;
  };

  FlowExecutor& owner_;
  NodeFlow* home_;
  int first_worker_;  ///< the number of the worker in slot 0
  int workers_;
  std::span<const int> cpus_;
  std::atomic<uint64_t> places_{0};
  std::atomic<int> guests_{0};  ///< used in the home flow: threads on any node that a message has reached
  tbb::task_arena arena_;
  // The context is isolated. Otherwise the graph would stay bound to the oneTBB task group from which the first Run was
  // called.
  tbb::task_group_context context_{tbb::task_group_context::isolated};
  std::optional<tbb::flow::graph> graph_;
  std::optional<tbb::flow::function_node<tbb::flow::continue_msg>> joiners_;
};

namespace {

/// Leaks an object on purpose, and tells LeakSanitizer of the leak.
template <typename T>
void Abandon(std::unique_ptr<T>& object) noexcept {
  [[maybe_unused]] const T* left = object.release();
#if defined(__SANITIZE_ADDRESS__)
  if (left != nullptr) __lsan_ignore_object(left);
#endif
}

// Destroys the flows and the allowance. In a forked child, and after the library has given up oneTBB, nothing may call
// oneTBB, not even to free its objects.
template <typename Flows, typename Allowance>
void StopFlows(Flows& flows, Allowance& allowance) noexcept {
  if (flows.empty() && allowance == nullptr) return;
  // The last access of a thread is inside oneTBB. ThreadSanitizer does not see that the end of Run waited for this
  // access.
  const TsanIgnore ignore;
  if (!SchedulerStarts()) {
    for (auto& flow : flows) Abandon(flow);
    Abandon(allowance);
  }
  // All messages must have arrived before the first flow is destroyed. The reason is that a thread that a late message
  // wakes still counts itself in the home flow.
  for (auto& flow : flows) {
    if (flow != nullptr) flow->Wait();
  }
  flows.clear();
  allowance.reset();
}

}  // namespace

FlowExecutor::FlowExecutor(std::vector<Node> nodes) : nodes_(std::move(nodes)) {
  for (const Node& node : nodes_) {
    assert(node.workers >= (nodes_.size() > 1 ? 2 : 1));
    workers_ += node.workers;
  }
}

FlowExecutor::~FlowExecutor() { StopFlows(flows_, allowance_); }

Status FlowExecutor::Run(const TaskGraph& graph, TaskFunction run_task, std::byte* state) {
  std::optional<Status> ended = RunOnThreads(graph, run_task, state, nullptr);
  return ended ? *std::move(ended) : RunInOrder(graph, run_task);
}

Status FlowExecutor::RunWithArrivals(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                     Arrivals& arrivals) {
  std::optional<Status> ended = RunOnThreads(graph, run_task, state, &arrivals);
  return ended ? *std::move(ended) : Executor::RunWithArrivals(graph, run_task, state, arrivals);
}

/// Runs the graph on several threads. Returns nullopt if the caller has to run every task itself.
std::optional<Status> FlowExecutor::RunOnThreads(const TaskGraph& graph, TaskFunction run_task, std::byte* state,
                                                 Arrivals* arrivals) {
  assert(arrivals != nullptr || graph.arrivals == 0);
  if (graph.task_count <= 1 || graph.workers() <= 1 || workers_ <= 1) return std::nullopt;
  GraphRun run(graph, run_task, state, arrivals);
  auto walk = [&](int worker) { run.WalkToEnd(worker); };
  if (nodes_.size() == 1 && OpenMpTeam::Run(workers_, OpenMpTeam::Body(walk))) return run.TakeStatus();
  if (!SchedulerStarts()) return std::nullopt;
  return GuardedCall("thread arena", [&] {
    Start();
    run_ = &run;
    RunParallel(graph);
    return run.TakeStatus();
  });
}

void FlowExecutor::Start() {
  if (!flows_.empty()) return;
  allowance_ = std::make_unique<ThreadAllowance>(workers_);
  int first_worker = 0;
  try {
    for (const Node& node : nodes_) {
      NodeFlow* home = flows_.empty() ? nullptr : flows_.front().get();
      flows_.push_back(std::make_unique<NodeFlow>(*this, home, node, first_worker));
      flows_.back()->Start();
      first_worker += node.workers;
    }
  } catch (...) {
    StopFlows(flows_, allowance_);
    throw;
  }
}

void FlowExecutor::RunParallel(const TaskGraph& graph) {
  TsanRelease(this);
  NodeFlow& home = *flows_.front();
  const auto call = [&] {
    home.Join();
    for (const auto& flow : flows_) flow->Invite(graph.task_count - (flow.get() == &home ? 1 : 0));
    if (run_->polls()) WalkAndPoll(home);
    Walk(home);
    if (SchedulerGivenUp()) {
      home.WaitForGuests();
    } else {
      home.Wait();
    }
  };
  AskScheduler([&] { home.Execute(call); });
  TsanAcquire(this);
}

void FlowExecutor::Walk(NodeFlow& flow) noexcept {
  TsanAcquire(this);
  // The library binds its threads to CPUs itself. oneTBB's library for binding would load hwloc, which does not survive
  // a lack of memory.
  const BoundThread on_node(flow.cpus());
  const int worker = flow.Worker();
  for (;;) {
    run_->Walk(worker, [&](int queued) { Wake(flow, queued); });
    // This walker has found nothing to claim and nothing queued, so no further thread is needed.
    int taken_back = 0;
    for (const auto& each : flows_) taken_back += each->TakeBack();
    flow.Leave();
    // Another thread may have queued tasks after this walker's last look and before Leave. That thread found no free
    // place, or TakeBack above has taken back the places that it offered. So this thread looks again.
    if (!run_->HasQueued() || !flow.Join()) break;
    Wake(flow, taken_back);
  }
  TsanRelease(this);
}

/// Walks on the caller's thread while inputs arrive. The caller keeps its place for the Walk that follows.
void FlowExecutor::WalkAndPoll(NodeFlow& home) noexcept {
  TsanAcquire(this);
  const BoundThread on_node(home.cpus());
  run_->WalkAndPoll(home.Worker(), [&](int queued) { Wake(home, queued); });
  TsanRelease(this);
}

void FlowExecutor::Wake(NodeFlow& from, int tasks) noexcept {
  tasks -= from.Invite(tasks);
  for (const auto& flow : flows_) {
    if (tasks <= 0) return;
    if (flow.get() != &from) tasks -= flow->Invite(tasks);
  }
}

}  // namespace fa::core
