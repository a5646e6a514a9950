#include "tiling/simulate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::tiling {
namespace {

core::TaskGraph Graph(int32_t tasks, std::vector<int64_t> range_begin,
                      const std::vector<std::pair<int32_t, int32_t>>& edges = {}) {
  core::TaskGraph graph;
  graph.task_count = tasks;
  graph.range_begin = std::move(range_begin);
  if (edges.empty()) return graph;
  graph.predecessor_count.assign(static_cast<size_t>(tasks), 0);
  graph.successor_begin.push_back(0);
  for (int32_t task = 0; task < tasks; ++task) {
    for (const auto& [from, to] : edges) {
      if (from != task) continue;
      graph.successors.push_back(to);
      ++graph.predecessor_count[static_cast<size_t>(to)];
    }
    graph.successor_begin.push_back(std::ssize(graph.successors));
  }
  return graph;
}

TEST(Simulate, OneWorkerTakesTheSum) {
  EXPECT_EQ(SimulateMakespan(Graph(4, {0, 4}), std::vector<int64_t>{1, 2, 3, 4}), 10);
}

TEST(Simulate, BalancedRangesRunSideBySide) {
  EXPECT_EQ(SimulateMakespan(Graph(4, {0, 2, 4}), std::vector<int64_t>{3, 2, 1, 4}), 5);
}

TEST(Simulate, AnIdleWorkerTakesTheBackHalfOfTheLargestRange) {
  // Worker 1 has no tasks in its own range. At time 0 worker 0 has claimed task 0. Worker 1 takes the back half of
  // tasks 1 to 5, {4, 5}, and later task 3. Both workers end after 3 tasks.
  EXPECT_EQ(SimulateMakespan(Graph(6, {0, 6, 6}), std::vector<int64_t>(6, 10)), 30);
}

TEST(Simulate, ATaskClaimedEarlyRunsWhenItsPredecessorEnds) {
  // Task 1, which worker 1 claims, waits for task 0. Task 2 does not wait.
  EXPECT_EQ(SimulateMakespan(Graph(3, {0, 1, 3}, {{0, 1}}), std::vector<int64_t>{10, 5, 3}), 15);
}

TEST(Simulate, IdleWorkersWakeForReleasedTasks) {
  // Task 0 frees four tasks, one for each of the four workers.
  const std::vector<std::pair<int32_t, int32_t>> edges{{0, 1}, {0, 2}, {0, 3}, {0, 4}};
  EXPECT_EQ(SimulateMakespan(Graph(5, {0, 5, 5, 5, 5}, edges), std::vector<int64_t>{1, 7, 7, 7, 7}), 8);
}

TEST(Simulate, AChainTakesItsLengthWithAnyNumberOfWorkers) {
  const std::vector<std::pair<int32_t, int32_t>> edges{{0, 1}, {1, 2}, {2, 3}};
  EXPECT_EQ(SimulateMakespan(Graph(4, {0, 1, 2, 3, 4}, edges), std::vector<int64_t>{1, 2, 3, 4}), 10);
}

// Task 0 releases tasks 1 to 3. Its worker runs task 1 next, and the other worker takes task 3 before task 2.
TEST(Simulate, ReleasedTasksRunInClaimOrderIfTheGraphSaysSo) {
  core::TaskGraph graph = Graph(4, {0, 4, 4}, {{0, 1}, {0, 2}, {0, 3}});
  const std::vector<int64_t> durations{1, 1, 2, 3};
  graph.shared_claims = true;
  graph.order = {0, 3, 2, 1};
  graph.position = {0, 3, 2, 1};
  graph.earliest_first = true;
  EXPECT_EQ(SimulateMakespan(graph, durations), 4);
}

TEST(Simulate, PlansLieBetweenTheIdealAndTheSerialTime) {
  std::mt19937_64 random(23);
  for (int n = 0; n < 200; ++n) {
    const int workers = 1 + static_cast<int>(random() % 64);
    const ForwardPlan plan = MakeForwardPlan(RandomProblem(random), MakeMachine(workers, 1 + n % 2));
    EXPECT_LE(plan.efficiency, 1.0 + 1e-12);
    EXPECT_GE(plan.efficiency, 1.0 / workers - 1e-12);
    ASSERT_EQ(std::ssize(plan.load), workers);
    for (const double load : plan.load) EXPECT_TRUE(load >= 0 && load <= 1);
  }
}

TEST(Simulate, SchedulesOfBigMachinesCanBeJudgedHere) {
  for (const bool causal : {false, true}) {
    const ForwardPlan plan = MakeForwardPlan(MakeProblem({.lengths = {{8192, 8192}},
                                                          .heads = 32,
                                                          .heads_kv = 8,
                                                          .d = 128,
                                                          .dv = 128,
                                                          .mask = causal ? Mask::Causal() : Mask::None()}),
                                             MakeMachine(128, 2));
    EXPECT_GT(plan.efficiency, 0.95) << "causal " << causal;
  }
}

}  // namespace
}  // namespace fa::tiling
