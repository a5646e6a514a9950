#include "tiling/simulate.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

namespace fa::tiling {
namespace {

struct Range {
  int64_t begin = 0, end = 0;
};

class Simulation {
 public:
  Simulation(const core::TaskGraph& graph, std::span<const int64_t> durations)
      : graph_(graph), durations_(durations), waiting_for_(graph.predecessor_count) {
    for (int worker = 0; worker < graph.workers(); ++worker) {
      const auto c = static_cast<size_t>(worker);
      ranges_.push_back({graph.range_begin[c], graph.range_begin[c + 1]});
    }
    if (graph.has_edges()) claimed_.assign(static_cast<size_t>(graph.task_count), false);
  }

  int64_t Run() {
    for (int worker = 0; worker < graph_.workers(); ++worker) Start(worker, 0);
    int64_t now = 0;
    while (!running_.empty()) {
      const auto [end, worker, task] = running_.top();
      running_.pop();
      now = end;
      Complete(task);
      Start(worker, now);
      // A worker goes idle when nothing is left to claim: from then on only released tasks can feed it.
      while (!idle_.empty() && !released_.empty()) {
        const int woken = idle_.back();
        idle_.pop_back();
        Start(woken, now);
      }
    }
    return now;
  }

 private:
  void Start(int worker, int64_t now) {
    const std::optional<int32_t> task = Next(static_cast<size_t>(worker));
    if (!task) {
      idle_.push_back(worker);
      return;
    }
    running_.emplace(now + durations_[static_cast<size_t>(*task)], worker, *task);
  }

  std::optional<int32_t> Next(size_t worker) {
    if (!released_.empty()) {
      const int32_t task = released_.front();
      released_.pop();
      return task;
    }
    Range& own = ranges_[worker];
    while (own.begin < own.end || Steal(own)) {
      const int32_t task = graph_.TaskAt(own.begin++);
      if (Ready(task)) return task;
      claimed_[static_cast<size_t>(task)] = true;
    }
    return std::nullopt;
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

  void Complete(int32_t task) {
    if (!graph_.has_edges()) return;
    const auto t = static_cast<size_t>(task);
    for (int64_t e = graph_.successor_begin[t]; e < graph_.successor_begin[t + 1]; ++e) {
      const int32_t successor = graph_.successors[static_cast<size_t>(e)];
      if (--waiting_for_[static_cast<size_t>(successor)] == 0 && claimed_[static_cast<size_t>(successor)]) {
        released_.push(successor);
      }
    }
  }

  using Event = std::tuple<int64_t, int, int32_t>;  // end, worker, task

  const core::TaskGraph& graph_;
  std::span<const int64_t> durations_;
  std::vector<int32_t> waiting_for_;
  std::vector<bool> claimed_;
  std::vector<Range> ranges_;
  std::vector<int> idle_;
  std::queue<int32_t> released_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> running_;
};

}  // namespace

int64_t SimulateMakespan(const core::TaskGraph& graph, std::span<const int64_t> durations) {
  return Simulation(graph, durations).Run();
}

}  // namespace fa::tiling
