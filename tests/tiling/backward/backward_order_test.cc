// Tests the order in which workers claim the tasks of the backward. In every order that the edges allow, a slot belongs
// to one (sequence, kv head) at a time. A simulation shows that the workers of large machines stay busy.
#include "tiling/backward/backward_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>

#include "core/run/executor.h"
#include "core/run/serial_executor.h"
#include "support/execution/shuffled_executor.h"
#include "support/execution/thread_executor.h"
#include "tests/tiling/sample_problems.h"
#include "tiling/backward/make_backward_plan.h"
#include "tiling/simulate.h"

namespace fa::tiling {
namespace {

using PairId = std::pair<int32_t, int32_t>;  // (sequence, kv head)

AttentionProblem Heads(int64_t heads, int64_t s, Mask mask = {}) {
  return MakeProblem({.lengths = {{s, s}}, .heads = heads, .heads_kv = heads, .d = 128, .dv = 128, .mask = mask});
}

// Follows which pair holds each slot. A tile must find its slot free, or held by its own (sequence, kv head).
class SlotWatch {
 public:
  explicit SlotWatch(const BackwardPlan& plan) : plan_(plan), slots_(static_cast<size_t>(plan.slots)) {
    for (const BackwardItem& item : plan.items) ++tiles_of_pair_[{item.sequence, item.head_kv}];
  }

  void operator()(int32_t task, int /*worker*/) {
    ++runs_;
    if (task >= std::ssize(plan_.items)) return;
    const BackwardItem& item = plan_.items[static_cast<size_t>(task)];
    Slot& slot = slots_.at(static_cast<size_t>(item.slot));
    const PairId pair{item.sequence, item.head_kv};
    if (slot.tiles_left == 0) slot = {pair, tiles_of_pair_[pair]};
    EXPECT_EQ(slot.pair, pair) << "slot " << item.slot << " is in use";
    --slot.tiles_left;
  }

  [[nodiscard]] int64_t runs() const { return runs_; }

 private:
  struct Slot {
    PairId pair{-1, -1};
    int64_t tiles_left = 0;
  };

  const BackwardPlan& plan_;
  std::vector<Slot> slots_;
  std::map<PairId, int64_t> tiles_of_pair_;
  int64_t runs_ = 0;
};

TEST(BackwardOrder, ASlotBelongsToOnePairAtATimeInAnyOrderTheEdgesAllow) {
  std::mt19937_64 random(37);
  int64_t joins = 0;
  for (uint64_t n = 0; n < 200; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    const BackwardPlan plan = MakeBackwardPlan(problem, MakeMachine(1 + static_cast<int>(n % 5)));
    SCOPED_TRACE(Text(problem));
    joins += plan.graph.task_count - std::ssize(plan.items);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      SlotWatch watch(plan);
      ASSERT_TRUE(test::ShuffledExecutor(seed).Run(plan.graph, core::TaskFunction(watch), nullptr).ok());
      ASSERT_EQ(watch.runs(), plan.graph.task_count);
    }
    SlotWatch watch(plan);
    ASSERT_TRUE(core::RunInOrder(plan.graph, core::TaskFunction(watch)).ok());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(joins, 1000);
}

TEST(BackwardOrder, PairsGoOneByOneWhereTheProblemAsksForIt) {
  AttentionProblem problem = Heads(3, 512, Mask::Causal());
  problem.one_pair_at_a_time = true;
  const BackwardPlan plan = MakeBackwardPlan(problem, MakeMachine(8));
  ASSERT_EQ(plan.slots, 1);  // with one slot, SlotWatch checks the order of the pairs
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SlotWatch watch(plan);
    ASSERT_TRUE(test::ShuffledExecutor(seed).Run(plan.graph, core::TaskFunction(watch), nullptr).ok());
  }
}

TEST(BackwardOrder, ThreadsRunEveryTaskOnceAndAfterItsPredecessors) {
  std::mt19937_64 random(41);
  for (int n = 0; n < 60; ++n) {
    const BackwardPlan plan = MakeBackwardPlan(RandomProblem(random), MakeMachine(1 + n % 8));
    const core::TaskGraph& graph = plan.graph;
    const auto tasks = static_cast<size_t>(graph.task_count);
    const std::unique_ptr<std::atomic<int32_t>[]> waits_for(new std::atomic<int32_t>[tasks]());
    const std::unique_ptr<std::atomic<int>[]> runs(new std::atomic<int>[tasks]());
    for (size_t t = 0; graph.has_edges() && t < tasks; ++t) waits_for[t] = graph.predecessor_count[t];
    std::atomic<int> early{0};
    auto run = [&](int32_t task, int) {
      const auto t = static_cast<size_t>(task);
      early += waits_for[t] != 0;
      ++runs[t];
      for (int64_t e = graph.has_edges() ? graph.successor_begin[t] : 0;
           graph.has_edges() && e < graph.successor_begin[t + 1]; ++e) {
        --waits_for[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])];
      }
    };
    const size_t bytes = (core::RunStateBytes(graph) / 64 + 1) * 64;
    const std::unique_ptr<std::byte, decltype(&std::free)> state(static_cast<std::byte*>(std::aligned_alloc(64, bytes)),
                                                                 &std::free);
    test::ThreadExecutor executor(3);
    ASSERT_TRUE(executor.Run(graph, core::TaskFunction(run), state.get()).ok());
    EXPECT_EQ(early, 0);
    EXPECT_TRUE(std::all_of(runs.get(), runs.get() + tasks, [](const std::atomic<int>& count) { return count == 1; }));
  }
}

TEST(BackwardOrder, WithAsManyHeadsAsWorkersEachWorkerWalksItsOwn) {
  const BackwardPlan plan = MakeBackwardPlan(Heads(4, 1024, Mask::Causal()), MakeMachine(2));
  EXPECT_EQ(plan.slots, 2);
  // Two heads alternate, column by column. Each column's tiles run from its first row to its last.
  for (size_t t = 1; t < plan.items.size(); ++t) {
    const BackwardItem &before = plan.items[t - 1], &item = plan.items[t];
    if (before.last_of_column) {
      EXPECT_TRUE(item.first_of_column);
      EXPECT_NE(item.head, before.head);
    } else {
      EXPECT_EQ(std::pair(item.head, item.key_begin), std::pair(before.head, before.key_begin));
      EXPECT_EQ(item.row_begin, before.row_end);
    }
  }
}

TEST(BackwardOrder, OneHeadIsClaimedInBandsOfAsManyColumnsAsWorkers) {
  const BackwardPlan plan = MakeBackwardPlan(Heads(1, 2048, Mask::Causal()), MakeMachine(4));
  ASSERT_EQ(plan.block_q, plan.block_k);
  // The last four columns are claimed together. The tiles on the diagonal come first, and then those one row group
  // below the diagonal.
  std::vector<std::pair<int64_t, int64_t>> tiles;  // (column, row group)
  for (size_t t = 0; t < 7; ++t) {
    tiles.emplace_back(plan.items[t].key_begin / plan.block_k, plan.items[t].row_begin / plan.block_q);
  }
  EXPECT_EQ(tiles, (std::vector<std::pair<int64_t, int64_t>>{
                       {15, 15}, {14, 14}, {13, 13}, {12, 12}, {14, 15}, {13, 14}, {12, 13}}));
}

TEST(BackwardOrder, HeavyPairsAreClaimedFirst) {
  const BackwardPlan plan =
      MakeBackwardPlan(MakeProblem({.lengths = {{100, 100}, {1000, 1000}, {300, 300}}}), MakeMachine(1));
  std::vector<int32_t> sequences;
  for (const BackwardItem& item : plan.items) {
    if (sequences.empty() || sequences.back() != item.sequence) sequences.push_back(item.sequence);
  }
  EXPECT_EQ(sequences, (std::vector<int32_t>{1, 2, 0}));
}

TEST(BackwardOrder, OneWorkerNeedsOneSlot) {
  const BackwardPlan plan = MakeBackwardPlan(Heads(5, 512), MakeMachine(1));
  EXPECT_EQ(plan.slots, 1);
  EXPECT_EQ(plan.graph.task_count, std::ssize(plan.items) + 4);
  EXPECT_EQ(plan.load, std::vector<double>{1});
  EXPECT_EQ(plan.efficiency, 1);
}

struct TaskCase {
  int64_t heads, s;
  Mask mask;
  int workers;
  double efficiency;
};

// The tiles of a column run one after another, and columns wait for each other. This limits the number of workers that
// one head can keep busy. The cases here are within the limit.
TEST(BackwardOrder, WorkersStayBusy) {
  const Mask full, causal = Mask::Causal(), window = Mask::Band(1023, 0);
  const TaskCase cases[] = {
      {1, 8192, causal, 2, 0.99},    {1, 8192, full, 2, 0.99},     {1, 2048, causal, 2, 0.98},
      {8, 2048, causal, 2, 0.99},    {8, 2048, full, 2, 0.99},     {1, 8192, causal, 16, 0.93},
      {8, 8192, causal, 64, 0.94},   {8, 8192, full, 64, 0.91},    {8, 8192, window, 64, 0.94},
      {32, 2048, full, 64, 0.99},    {32, 2048, causal, 64, 0.94}, {64, 2048, causal, 64, 0.99},
      {32, 8192, causal, 128, 0.94},
  };
  for (const TaskCase& c : cases) {
    const BackwardPlan plan = MakeBackwardPlan(Heads(c.heads, c.s, c.mask), MakeMachine(c.workers));
    EXPECT_GE(plan.efficiency, c.efficiency) << c.heads << " heads of " << c.s << ", " << c.workers << " workers";
    EXPECT_LE(plan.efficiency, 1 + 1e-12);
    ASSERT_EQ(std::ssize(plan.load), c.workers);
    double mean = 0;
    for (const double load : plan.load) mean += load / c.workers;
    EXPECT_NEAR(mean, plan.efficiency, 1e-9);
  }
}

TEST(BackwardOrder, BeyondWhatIsSimulatedTheEdgesBoundTheEfficiency) {
  const BackwardPlan one = MakeBackwardPlan(Heads(1, 65536), MakeMachine(1024));
  EXPECT_GT(std::ssize(one.items), 200'000);
  // A longest path of edges goes through all columns of the first row group, and then down the last column.
  const double columns = 65536.0 / static_cast<double>(one.block_k);
  const double row_groups = 65536.0 / static_cast<double>(one.block_q);
  EXPECT_NEAR(one.efficiency, columns * row_groups / (1024 * (columns + row_groups - 1)), 1e-9);
}

// There are two chains: task 2 follows task 0, and task 3 follows task 1. Each worker takes the front of the shared
// list. Task 2 goes to the worker that comes first, and runs after task 0.
TEST(Simulate, SharedClaimsAreTakenFromTheFrontByEveryWorker) {
  core::TaskGraph graph;
  graph.task_count = 4;
  graph.range_begin = {0, 4, 4};
  graph.shared_claims = true;
  EXPECT_EQ(Simulate(graph, std::vector<int64_t>{5, 1, 1, 1}).busy, (std::vector<int64_t>{5, 3}));
  graph.predecessor_count = {0, 0, 1, 1};
  graph.successor_begin = {0, 1, 2, 2, 2};
  graph.successors = {2, 3};
  const Simulated simulated = Simulate(graph, std::vector<int64_t>{5, 1, 4, 1});
  EXPECT_EQ(simulated.makespan, 9);
  EXPECT_EQ(simulated.busy, (std::vector<int64_t>{9, 2}));
}

TEST(Simulate, FreedTasksGoBeforeNewClaimsAndTheLatestFirst) {
  core::TaskGraph graph;
  graph.task_count = 5;  // task 0 frees 1, 2 and 3; task 4 is free, and last in the list
  graph.range_begin = {0, 5, 5};
  graph.shared_claims = true;
  graph.predecessor_count = {0, 1, 1, 1, 0};
  graph.successor_begin = {0, 3, 3, 3, 3, 3};
  graph.successors = {1, 2, 3};
  // Worker 1 claims tasks 1 to 3, which wait, and runs task 4 until time 10. Worker 0 runs tasks 0, 1, 2 and 3, one
  // after another.
  const Simulated simulated = Simulate(graph, std::vector<int64_t>{2, 3, 3, 1, 10});
  EXPECT_EQ(simulated.busy, (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(simulated.makespan, 10);
}

}  // namespace
}  // namespace fa::tiling
