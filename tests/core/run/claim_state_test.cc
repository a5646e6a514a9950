#include "core/run/claim_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "core/run/executor.h"
#include "core/run/random_graph.h"

namespace fa::core {
namespace {

using test::AddEdges;
using test::FlatGraph;
using test::RandomGraph;
using test::StateMemory;

TEST(ClaimState, WithoutStealingEachWorkersWalkIsItsRangeInPlanOrder) {
  TaskGraph graph = FlatGraph(12, 3);
  graph.order = {7, 3, 11, 0, 5, 1, 2, 10, 4, 9, 8, 6};
  graph.range_begin = {0, 3, 8, 12};
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  std::vector<std::vector<int32_t>> walks(3);
  // The workers take turns. The last worker has the longest range, so that no worker ends before the others have run
  // their own ranges.
  for (int round = 0; round < 5; ++round) {
    for (int worker = 0; worker < 3; ++worker) {
      const size_t w = static_cast<size_t>(worker);
      if (walks[w].size() == static_cast<size_t>(graph.range_begin[w + 1] - graph.range_begin[w])) continue;
      walks[w].push_back(claims.Next(worker));
    }
  }
  EXPECT_EQ(walks[0], (std::vector<int32_t>{7, 3, 11}));
  EXPECT_EQ(walks[1], (std::vector<int32_t>{0, 5, 1, 2, 10}));
  EXPECT_EQ(walks[2], (std::vector<int32_t>{4, 9, 8, 6}));
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(claims.Next(worker), ClaimState::kNone);
}

TEST(ClaimState, AWorkerThatIsDoneTakesTheBackHalfOfTheLargestRange) {
  TaskGraph graph = FlatGraph(17, 3);
  graph.range_begin = {0, 0, 10, 17};
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(0), 5);  // worker 0 takes the back half of [0, 10)
  EXPECT_EQ(claims.Next(0), 6);  // worker 0 now has tasks of its own
  EXPECT_EQ(claims.Next(1), 0);  // worker 1 still takes the tasks of its own range from the front
  EXPECT_EQ(claims.Next(2), 10);
  for (int32_t task = 7; task < 10; ++task) EXPECT_EQ(claims.Next(0), task);
  EXPECT_EQ(claims.Next(0), 14);  // worker 0 takes the back half of [11, 17)
}

TEST(ClaimState, StealsOnTheOwnNodeFirst) {
  TaskGraph graph = FlatGraph(40, 4);
  graph.range_begin = {0, 0, 4, 36, 40};
  graph.range_node = {0, 0, 1, 1};
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(0), 2);  // half of [0, 4) on the worker's own node, although [4, 36) is larger
  EXPECT_EQ(claims.Next(0), 3);
  EXPECT_EQ(claims.Next(0), 1);
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Next(0), 20);  // no task is left on the worker's own node
}

TEST(ClaimState, AWorkerBeyondThePlannedRangesTakesSingleTasks) {
  const TaskGraph graph = FlatGraph(4, 2);
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(5), 1);
  EXPECT_EQ(claims.Next(5), 3);
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Next(1), 2);
  EXPECT_EQ(claims.Next(5), ClaimState::kNone);
}

TEST(ClaimState, SharedClaimsLetEveryWorkerClaimFromTheFront) {
  TaskGraph graph = FlatGraph(5, 3);
  graph.range_begin = {0, 5, 5, 5};
  graph.shared_claims = true;
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(2), 0);
  EXPECT_EQ(claims.Next(0), 1);
  EXPECT_EQ(claims.Next(1), 2);
  EXPECT_EQ(claims.Next(7), 3);
  EXPECT_EQ(claims.Next(2), 4);
  EXPECT_EQ(claims.Next(0), ClaimState::kNone);
}

TEST(ClaimState, AClaimedTaskThatWaitsGoesToWhoCompletesItsLastPredecessor) {
  TaskGraph graph = FlatGraph(3, 2);
  graph.range_begin = {0, 1, 3};
  AddEdges(graph, {{0, 2}, {1, 2}});
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(1), 1);
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Complete(1, 1).next, ClaimState::kNone);
  EXPECT_EQ(claims.Next(1), ClaimState::kNone);  // claims task 2, which waits for task 0
  const ClaimState::Released released = claims.Complete(0, 0);
  EXPECT_EQ(released.next, 2);
  EXPECT_EQ(released.queued, 0);
  EXPECT_EQ(claims.Next(0), ClaimState::kNone);
}

TEST(ClaimState, ATaskFreedBeforeItsClaimWaitsForTheClaim) {
  TaskGraph graph = FlatGraph(2, 1);
  AddEdges(graph, {{0, 1}});
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Complete(0, 0).next, ClaimState::kNone);
  EXPECT_EQ(claims.Next(0), 1);
}

TEST(ClaimState, FreedTasksAreQueuedInOrderAndGoBeforeNewClaims) {
  TaskGraph graph = FlatGraph(8, 2);
  graph.range_begin = {0, 3, 8};
  AddEdges(graph, {{0, 3}, {0, 4}, {0, 5}});
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Next(1), 6);  // the worker also claims 3, 4 and 5
  EXPECT_FALSE(claims.HasQueued());
  const ClaimState::Released released = claims.Complete(0, 0);
  EXPECT_EQ(released.next, 3);
  EXPECT_EQ(released.queued, 2);
  EXPECT_TRUE(claims.HasQueued());
  EXPECT_EQ(claims.Next(0), 4);
  EXPECT_EQ(claims.Next(1), 5);
  EXPECT_FALSE(claims.HasQueued());
  EXPECT_EQ(claims.Next(0), 1);
}

TEST(ClaimState, QueuedTasksStayOnTheirNodeWhileTheOtherHasWork) {
  TaskGraph graph = FlatGraph(8, 2);
  graph.range_begin = {0, 5, 8};
  graph.range_node = {0, 1};
  AddEdges(graph, {{0, 1}, {0, 2}, {0, 3}});
  StateMemory memory(graph);
  ClaimState claims(graph, memory.get());
  EXPECT_EQ(claims.Next(0), 0);
  EXPECT_EQ(claims.Next(0), 4);  // the worker also claims 1, 2 and 3
  EXPECT_EQ(claims.Complete(0, 0).queued, 2);
  EXPECT_EQ(claims.Next(1), 5);
  EXPECT_EQ(claims.Next(1), 6);
  EXPECT_EQ(claims.Next(1), 7);
  EXPECT_EQ(claims.Next(1), 2);  // the worker takes a task of the other node only now
  EXPECT_EQ(claims.Next(0), 3);
}

// One thread plays all workers, which take turns at random. So only whole steps interleave, and a seed repeats the
// order.
TEST(ClaimState, EveryRandomInterleavingRunsEachTaskOnceAfterItsPredecessors) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int workers = 1 + static_cast<int>(random() % 8);
    const int nodes = 1 + static_cast<int>(random() % 3);
    const TaskGraph graph = RandomGraph(seed, 1 + static_cast<int32_t>(random() % 150), workers, nodes);
    StateMemory memory(graph);
    ClaimState claims(graph, memory.get());

    std::vector<int> runs(static_cast<size_t>(graph.task_count), 0);
    std::vector<int> done_predecessors(runs.size(), 0);
    std::vector<int32_t> current(static_cast<size_t>(workers), ClaimState::kNone);
    size_t done = 0;
    for (int step = 0; done < runs.size() && step < 100000; ++step) {
      const size_t w = random() % current.size();
      if (current[w] == ClaimState::kNone) {
        current[w] = claims.Next(static_cast<int>(w));
        if (current[w] == ClaimState::kNone) continue;
      }
      const size_t task = static_cast<size_t>(current[w]);
      ++runs[task];
      ++done;
      if (graph.has_edges()) {
        EXPECT_EQ(done_predecessors[task], graph.predecessor_count[task]);
        for (int64_t e = graph.successor_begin[task]; e < graph.successor_begin[task + 1]; ++e) {
          ++done_predecessors[static_cast<size_t>(graph.successors[static_cast<size_t>(e)])];
        }
      }
      current[w] = claims.Complete(current[w], static_cast<int>(w)).next;
    }
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), graph.task_count);
  }
}

TEST(ClaimState, NeedsRoomForItsRangesAndOnlyWithEdgesForItsTasks) {
  TaskGraph graph = FlatGraph(1000, 4);
  const size_t flat_bytes = RunStateBytes(graph);
  EXPECT_EQ(flat_bytes, 4 * 64u);
  AddEdges(graph, {{0, 1}});
  EXPECT_EQ(RunStateBytes(graph), flat_bytes + 1000 * 8u);
}

}  // namespace
}  // namespace fa::core
