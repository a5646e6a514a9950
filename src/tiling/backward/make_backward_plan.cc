// This file plans the dense backward in one pass over the keys. A tile is a column of keys against a group of rows, and
// each row group has one f32 accumulator of dQ. Edges keep every sum in one order, whichever workers compute its terms.
#include "tiling/backward/make_backward_plan.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <numeric>
#include <span>

#include "core/integer.h"
#include "tiling/backward/backward_interleave.h"
#include "tiling/backward/backward_order.h"
#include "tiling/backward/backward_shape.h"
#include "tiling/backward/backward_tiles.h"
#include "tiling/plan_limits.h"
#include "tiling/simulate.h"

namespace fa::tiling {
namespace {

using core::RoundUp;

/// Makes the (sequence, kv head) pairs and their tiles. Consecutive sequences with equal masks share their tiles.
class PairMaker {
 public:
  PairMaker(const AttentionProblem& problem, const Machine& machine, const BackwardCut& cut, BackwardPlan& plan)
      : problem_(problem), machine_(machine), cut_(cut), plan_(plan) {}

  /// Makes all (sequence, kv head) pairs. The heaviest pairs come first, so that no worker is left with a heavy pair
  /// at the end.
  std::vector<HeadPair> MakeAll() {
    CheckSize();
    for (size_t s = 0; s < problem_.sequences.size(); ++s) {
      const Sequence& sequence = problem_.sequences[s];
      if (s == 0 || problem_.sequences[s - 1].rule != sequence.rule) {
        made_.push_back(MakePairTiles(sequence.rule, cut_));
      }
      AddSequence(static_cast<int64_t>(s), sequence);
    }
    std::stable_sort(pairs_.begin(), pairs_.end(), [](const HeadPair& a, const HeadPair& b) {
      return a.tiles->visited_pairs > b.tiles->visited_pairs;
    });
    return std::move(pairs_);
  }

 private:
  // Checks the number of all tiles and the size of the slot of the largest pair. A slot holds f32 panels of Q, dO, dQ,
  // dK and dV.
  void CheckSize() const {
    double items = 0, slot_floats = 0, pairs = 0;
    const auto columns = static_cast<double>(problem_.d + problem_.d_rope + problem_.dv);
    const auto group = static_cast<double>(cut_.head_by_head ? 1 : problem_.group());
    for (const Sequence& sequence : problem_.sequences) {
      const double tiles = CountPairTiles(sequence.rule, cut_);
      items += tiles * static_cast<double>(problem_.heads_kv);
      if (tiles == 0) continue;
      pairs += static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
      const double rows = group * static_cast<double>(sequence.sq);
      slot_floats = std::max(slot_floats, (rows + static_cast<double>(sequence.sk)) * columns);
    }
    CheckTasks(items, machine_);
    CheckWork(BackwardFlopsPerPair(problem_) * static_cast<double>(problem_.heads) * pairs, machine_.workers);
    CheckWorkspace(slot_floats * sizeof(float), machine_);
  }

  void AddSequence(int64_t index, const Sequence& sequence) {
    const PairTiles& tiles = made_.back();
    const double flops = BackwardFlopsPerPair(problem_), heads = static_cast<double>(problem_.heads);
    plan_.flops += flops * heads * static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
    plan_.flops_full += flops * heads * static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
    plan_.flops_visited += flops * static_cast<double>(problem_.heads_kv) * tiles.visited_pairs;
    if (tiles.tiles.empty()) return;
    const int64_t heads_of_slot = cut_.head_by_head ? 1 : cut_.group;
    plan_.slot_rows = std::max(plan_.slot_rows, heads_of_slot * RoundUp(sequence.sq, cut_.block_q));
    plan_.slot_keys = std::max(plan_.slot_keys, RoundUp(sequence.sk, cut_.block_k));
    for (int64_t head_kv = 0; head_kv < problem_.heads_kv; ++head_kv) {
      pairs_.push_back({index, head_kv, &tiles});
    }
  }

  const AttentionProblem& problem_;
  const Machine& machine_;
  const BackwardCut& cut_;
  BackwardPlan& plan_;
  std::deque<PairTiles> made_;  // a deque, because pairs point to its elements while it grows
  std::vector<HeadPair> pairs_;
};

// Returns the time of the longest path along the edges. No run is shorter, with any number of workers.
int64_t LongestPath(const core::TaskGraph& graph, std::span<const int64_t> durations) {
  std::vector<int64_t> start(durations.size(), 0);
  int64_t longest = 0;
  for (int64_t position = 0; position < graph.task_count; ++position) {
    const auto task = static_cast<size_t>(graph.TaskAt(position));
    const int64_t end = start[task] + durations[task];
    longest = std::max(longest, end);
    if (!graph.has_edges()) continue;
    for (int64_t e = graph.successor_begin[task]; e < graph.successor_begin[task + 1]; ++e) {
      int64_t& successor_start = start[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])];
      successor_start = std::max(successor_start, end);
    }
  }
  return longest;
}

std::vector<int64_t> Durations(const BackwardPlan& plan) {
  std::vector<int64_t> durations(static_cast<size_t>(plan.graph.task_count), 0);
  for (size_t t = 0; t < plan.items.size(); ++t) durations[t] = plan.items[t].cost + kTileOverheadGroups;
  return durations;
}

void Predict(BackwardPlan& plan) {
  const core::TaskGraph& graph = plan.graph;
  const auto workers = static_cast<size_t>(graph.workers());
  plan.load.assign(workers, 1.0);
  if (workers == 1 || graph.task_count == 0) return;
  const std::vector<int64_t> durations = Durations(plan);
  const double total = std::accumulate(durations.begin(), durations.end(), 0.0);
  if (graph.task_count <= kMaxSimulatedTasks) {
    const Simulated simulated = Simulate(graph, durations);
    plan.efficiency = total / (static_cast<double>(workers) * static_cast<double>(simulated.makespan));
    for (size_t worker = 0; worker < workers; ++worker) {
      plan.load[worker] = static_cast<double>(simulated.busy[worker]) / static_cast<double>(simulated.makespan);
    }
  } else {
    const auto path = static_cast<double>(LongestPath(graph, durations));
    plan.efficiency = std::min(1.0, total / (static_cast<double>(workers) * path));
    plan.load.assign(workers, plan.efficiency);
  }
}

}  // namespace

std::vector<int> PredictedWorkers(const BackwardPlan& plan) {
  if (plan.graph.task_count == 0) return {};
  return Simulate(plan.graph, Durations(plan)).worker;
}

BackwardPlan MakeBackwardPlan(const AttentionProblem& problem, const Machine& machine) {
  BackwardPlan plan;
  const BackwardInterleave interleave = ChooseBackwardInterleave(problem, machine.workers);
  BackwardShape shape = ChooseBackwardShape(problem, machine, interleave);
  // Computing one query head of a pair at a time makes slots smaller, so that panels leave room in the caches. But
  // workers that share a pair need the longer columns that all its heads give.
  plan.head_by_head = interleave.band == 1 && problem.group() > 1;
  plan.block_q = shape.block_q;
  plan.block_k = shape.block_k;
  plan.reason = std::move(shape.reason);
  const BackwardCut cut{.block_q = plan.block_q,
                        .block_k = plan.block_k,
                        .strip_rows = machine.strip_rows,
                        .group = problem.group(),
                        .band = interleave.band,
                        .head_by_head = plan.head_by_head};
  PairMaker maker(problem, machine, cut, plan);
  const std::vector<HeadPair> pairs = maker.MakeAll();
  OrderPairs(pairs, interleave, problem.group(), machine.workers, plan);
  Predict(plan);
  return plan;
}

}  // namespace fa::tiling
