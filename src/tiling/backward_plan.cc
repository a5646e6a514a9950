// The dense backward in one pass over the keys: tiles (column of keys x group of rows), one f32 accumulator of dQ a row
// group, and edges that keep every sum in one order whoever computes it.
#include "tiling/backward_plan.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <new>
#include <numeric>
#include <span>

#include "tiling/backward_interleave.h"
#include "tiling/backward_order.h"
#include "tiling/backward_shape.h"
#include "tiling/backward_tiles.h"
#include "tiling/simulate.h"

namespace fa::tiling {
namespace {

// Task ids are 32 bits; gates must fit beside the tiles. A plan with more tiles would take 64 GiB.
constexpr double kMaxItems = 1 << 30;

// A discrete-event simulation of so many tasks takes about 40 ms; beyond, the tail is so short that balance is all.
constexpr int32_t kMaxSimulatedTasks = 200'000;

// What a tile costs beside its own products (the task itself, reading and writing dQ), in groups of a strip and 8 keys.
// A model: 3 % of a tile of 128 rows and keys.
constexpr int64_t kTileOverhead = 2;

int64_t RoundUp(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

bool SameRule(const RowRule& a, const RowRule& b) {
  return a.lo == b.lo && a.hi == b.hi && a.prefix == b.prefix && a.sq == b.sq && a.sk == b.sk;
}

double FlopsPerPair(const AttentionProblem& problem) {
  return 2 * static_cast<double>(3 * (problem.d + problem.d_rope) + 2 * problem.dv);
}

/// The pairs that have tiles. Tiles are made once for a run of sequences with equal rules.
class PairMaker {
 public:
  PairMaker(const AttentionProblem& problem, const BackwardCut& cut, BackwardPlan& plan)
      : problem_(problem), cut_(cut), plan_(plan) {}

  std::vector<HeadPair> MakeAll() {
    double items = 0;
    for (size_t s = 0; s < problem_.sequences.size(); ++s) {
      const Sequence& sequence = problem_.sequences[s];
      if (s == 0 || !SameRule(problem_.sequences[s - 1].rule, sequence.rule)) {
        items_of_pair_ = CountPairTiles(sequence.rule, cut_);
        items += items_of_pair_ * static_cast<double>(problem_.heads_kv);
        if (items > kMaxItems) throw std::bad_alloc();
        made_.push_back(MakePairTiles(sequence.rule, cut_));
      } else {
        items += items_of_pair_ * static_cast<double>(problem_.heads_kv);
        if (items > kMaxItems) throw std::bad_alloc();
      }
      AddSequence(static_cast<int32_t>(s), sequence);
    }
    return std::move(pairs_);
  }

 private:
  void AddSequence(int32_t index, const Sequence& sequence) {
    const PairTiles& tiles = made_.back();
    const double flops = FlopsPerPair(problem_), heads = static_cast<double>(problem_.heads);
    plan_.flops += flops * heads * static_cast<double>(sequence.rule.KeptPairs({0, sequence.sq}));
    plan_.flops_full += flops * heads * static_cast<double>(sequence.sq) * static_cast<double>(sequence.sk);
    plan_.flops_visited += flops * static_cast<double>(problem_.heads_kv) * tiles.visited_pairs;
    if (tiles.tiles.empty()) return;
    plan_.slot_rows = std::max(plan_.slot_rows, cut_.group * RoundUp(sequence.sq, cut_.block_q));
    plan_.slot_keys = std::max(plan_.slot_keys, RoundUp(sequence.sk, cut_.block_k));
    for (int64_t head_kv = 0; head_kv < problem_.heads_kv; ++head_kv) {
      pairs_.push_back({index, static_cast<int32_t>(head_kv), &tiles});
    }
  }

  const AttentionProblem& problem_;
  const BackwardCut& cut_;
  BackwardPlan& plan_;
  double items_of_pair_ = 0;
  std::deque<PairTiles> made_;  // whose addresses stay
  std::vector<HeadPair> pairs_;
};

void Predict(BackwardPlan& plan) {
  const core::TaskGraph& graph = plan.graph;
  const auto workers = static_cast<size_t>(graph.workers());
  plan.load.assign(workers, 1.0);
  if (workers == 1 || graph.task_count == 0) return;
  std::vector<int64_t> durations(static_cast<size_t>(graph.task_count), 0);
  for (size_t t = 0; t < plan.items.size(); ++t) durations[t] = plan.items[t].cost + kTileOverhead;
  if (graph.task_count > kMaxSimulatedTasks) return;
  const Simulated simulated = Simulate(graph, durations);
  const auto makespan = static_cast<double>(simulated.makespan);
  for (size_t worker = 0; worker < workers; ++worker) {
    plan.load[worker] = static_cast<double>(simulated.busy[worker]) / makespan;
  }
  plan.efficiency = std::accumulate(plan.load.begin(), plan.load.end(), 0.0) / static_cast<double>(workers);
}

}  // namespace

BackwardPlan MakeBackwardPlan(const AttentionProblem& problem, const Machine& machine) {
  BackwardPlan plan;
  BackwardCut cut{.strip_rows = machine.strip_rows, .group = problem.group()};
  plan.block_k = cut.block_k = ChooseBackwardBlockK(problem, machine.isa);
  plan.block_q = cut.block_q = ChooseBackwardBlockQ(problem, machine, cut.block_k);
  const BackwardInterleave interleave = ChooseBackwardInterleave(problem, machine.workers, cut.block_k);
  cut.band = interleave.band;
  PairMaker maker(problem, cut, plan);
  const std::vector<HeadPair> pairs = maker.MakeAll();
  OrderPairs(pairs, interleave, problem.group(), machine.workers, plan);
  Predict(plan);
  return plan;
}

}  // namespace fa::tiling
