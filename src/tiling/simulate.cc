#include "tiling/simulate.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <queue>
#include <tuple>

namespace fa::tiling {
namespace {

constexpr int32_t kNone = -1;

struct Range {
  int64_t begin = 0, end = 0;
};

class Simulation {
 public:
  Simulation(const core::TaskGraph& graph, std::span<const int64_t> durations)
      : graph_(graph), durations_(durations), waiting_for_(graph.predecessor_count) {
    assert(graph.arrivals == 0);
    for (int worker = 0; worker < graph.workers(); ++worker) {
      const auto c = static_cast<size_t>(worker);
      ranges_.push_back({graph.range_begin[c], graph.range_begin[c + 1]});
    }
    result_.busy.assign(ranges_.size(), 0);
    result_.worker.assign(static_cast<size_t>(graph.task_count), 0);
    if (graph.has_edges()) claimed_.assign(static_cast<size_t>(graph.task_count), false);
  }

  Simulated Run() {
    for (int worker = 0; worker < graph_.workers(); ++worker) Start(worker, Next(worker), 0);
    while (!running_.empty()) {
      const auto [now, worker, task] = running_.top();
      running_.pop();
      result_.makespan = now;
      const int32_t freed = Complete(task);
      Start(worker, freed != kNone ? freed : Next(worker), now);
      // A worker goes idle when nothing is left to claim. After that it only runs tasks from the queue of tasks whose
      // predecessors have completed.
      while (!idle_.empty() && !queued_.empty()) {
        const int woken = idle_.back();
        idle_.pop_back();
        Start(woken, Next(woken), now);
      }
    }
    return std::move(result_);
  }

 private:
  void Start(int worker, int32_t task, int64_t now) {
    if (task == kNone) {
      idle_.push_back(worker);
      return;
    }
    const int64_t duration = durations_[static_cast<size_t>(task)];
    result_.busy[static_cast<size_t>(worker)] += duration;
    result_.worker[static_cast<size_t>(task)] = worker;
    running_.emplace(now + duration, worker, task);
  }

  [[nodiscard]] auto IsLater() const {
    return [this](int32_t a, int32_t b) { return graph_.IsLater(a, b); };
  }

  int32_t Next(int worker) {
    if (!queued_.empty()) {
      if (graph_.earliest_first) std::pop_heap(queued_.begin(), queued_.end(), IsLater());
      const int32_t task = queued_.back();
      queued_.pop_back();
      return task;
    }
    Range& own = ranges_[graph_.shared_claims ? 0 : static_cast<size_t>(worker)];
    while (own.begin < own.end || (!graph_.shared_claims && Steal(own))) {
      const int32_t task = graph_.TaskAt(own.begin++);
      if (Ready(task)) return task;
      claimed_[static_cast<size_t>(task)] = true;
    }
    return kNone;
  }

  bool Steal(Range& own) {
    const auto victim = std::max_element(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return a.end - a.begin < b.end - b.begin;
    });
    const int64_t remaining = victim->end - victim->begin;
    if (remaining <= 0) return false;
    own = {victim->begin + remaining / 2, victim->end};
    victim->end = own.begin;
    return true;
  }

  [[nodiscard]] bool Ready(int32_t task) const {
    return waiting_for_.empty() || waiting_for_[static_cast<size_t>(task)] == 0;
  }

  // Completes a task and returns the task that the same worker runs next.
  int32_t Complete(int32_t task) {
    if (!graph_.has_edges()) return kNone;
    int32_t next = kNone;
    const auto queued_before = std::ssize(queued_);
    const auto t = static_cast<size_t>(task);
    for (int64_t e = graph_.successor_begin[t]; e < graph_.successor_begin[t + 1]; ++e) {
      const int32_t successor = graph_.successors[static_cast<size_t>(e)];
      if (--waiting_for_[static_cast<size_t>(successor)] > 0 || !claimed_[static_cast<size_t>(successor)]) continue;
      if (next == kNone) {
        next = successor;
      } else {
        queued_.push_back(successor);
        if (graph_.earliest_first) std::push_heap(queued_.begin(), queued_.end(), IsLater());
      }
    }
    if (!graph_.earliest_first) std::reverse(queued_.begin() + queued_before, queued_.end());
    return next;
  }

  using Event = std::tuple<int64_t, int, int32_t>;  // end of the task, its worker, the task

  const core::TaskGraph& graph_;
  std::span<const int64_t> durations_;
  std::vector<int32_t> waiting_for_;
  std::vector<bool> claimed_;
  std::vector<Range> ranges_;
  std::vector<int> idle_;
  std::vector<int32_t> queued_;  // claimed tasks that may run now: a heap, or a stack whose back runs next
  std::priority_queue<Event, std::vector<Event>, std::greater<>> running_;
  Simulated result_;
};

}  // namespace

Simulated Simulate(const core::TaskGraph& graph, std::span<const int64_t> durations) {
  return Simulation(graph, durations).Run();
}

}  // namespace fa::tiling
