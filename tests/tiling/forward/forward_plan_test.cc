// Tests properties of every plan of the forward. Exactly one tile visits each (row, key, head) that the mask keeps. One
// tile writes each row. No choice that affects bits depends on the machine.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"
#include "tiling/row_cut.h"

namespace fa::tiling {
namespace {

constexpr int kRandomProblems = 400;

// Calls visit(problem, machine, plan) for random problems and machines.
template <typename Visit>
void ForRandomPlans(Visit visit) {
  std::mt19937_64 random(7);
  const int worker_counts[] = {1, 2, 3, 8, 64, 128};
  for (int n = 0; n < kRandomProblems; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    Machine machine = MakeMachine(worker_counts[n % 6], n % 3 == 0 ? 2 : 1);
    machine.strip_rows = std::array{16, 32, 48}[static_cast<size_t>(n % 3)];
    if (n % 5 == 0) machine.isa = Isa::kPortable;
    SCOPED_TRACE(Text(problem) + " workers " + std::to_string(machine.workers));
    visit(problem, machine, MakeForwardPlan(problem, machine));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ForwardPlan, EveryRowOfEveryHeadIsInOneTile) {
  ForRandomPlans([](const AttentionProblem& problem, const Machine&, const ForwardPlan& plan) {
    std::vector<std::vector<int>> tiles_of_row;  // per sequence, the number of tiles that write each row: [head][row]
    for (const Sequence& sequence : problem.sequences) {
      tiles_of_row.emplace_back(static_cast<size_t>(problem.heads * sequence.sq));
    }
    for (const ForwardItem& item : plan.items) {
      ASSERT_LT(item.row_begin, item.row_end);
      ASSERT_GE(item.heads, 1);
      ASSERT_EQ(item.head_begin / problem.group(), item.head_kv);
      ASSERT_EQ((item.head_begin + item.heads - 1) / problem.group(), item.head_kv);
      const int64_t sq = problem.sequences.at(static_cast<size_t>(item.sequence)).sq;
      ASSERT_GE(item.row_begin, 0);
      ASSERT_LE(item.row_end, sq);
      ASSERT_GE(item.head_begin, 0);
      ASSERT_LE(item.head_begin + item.heads, problem.heads);
      int* tiles = tiles_of_row[static_cast<size_t>(item.sequence)].data();
      for (int64_t head = item.head_begin; head < item.head_begin + item.heads; ++head) {
        for (int64_t row = item.row_begin; row < item.row_end; ++row) ++tiles[head * sq + row];
      }
    }
    for (const std::vector<int>& tiles : tiles_of_row) {
      ASSERT_EQ(std::count(tiles.begin(), tiles.end(), 1), std::ssize(tiles));
    }
  });
}

TEST(ForwardPlan, KeysOfATileAreTheHullOfItsRowsKeys) {
  ForRandomPlans([](const AttentionProblem& problem, const Machine&, const ForwardPlan& plan) {
    for (const ForwardItem& item : plan.items) {
      const RowRule& rule = problem.sequences[static_cast<size_t>(item.sequence)].rule;
      Interval hull{rule.sk, 0};
      for (int64_t row = item.row_begin; row < item.row_end; ++row) {
        const Interval keys = rule.Keys(row);
        if (!keys.empty()) hull = {std::min(hull.begin, keys.begin), std::max(hull.end, keys.end)};
      }
      ASSERT_EQ(item.keys, hull.empty() ? Interval{} : hull);
    }
  });
}

TEST(ForwardPlan, TilesFitTheTileShape) {
  ForRandomPlans([](const AttentionProblem&, const Machine& machine, const ForwardPlan& plan) {
    ASSERT_EQ(plan.shape.block_q % machine.strip_rows, 0);
    ASSERT_GE(plan.shape.block_q, machine.strip_rows);
    for (const ForwardItem& item : plan.items) {
      ASSERT_LE((item.row_end - item.row_begin) * item.heads, plan.shape.block_q);
      if (item.heads == 1) {
        ASSERT_EQ(item.row_begin % machine.strip_rows, 0);
      }
    }
  });
}

TEST(ForwardPlan, ItemsStandInTheOrderSequenceHeadRow) {
  ForRandomPlans([](const AttentionProblem&, const Machine&, const ForwardPlan& plan) {
    const auto place = [](const ForwardItem& item) {
      return std::tuple(item.sequence, item.head_begin, item.row_begin);
    };
    ASSERT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(),
                               [&](const ForwardItem& a, const ForwardItem& b) { return place(a) < place(b); }));
  });
}

TEST(ForwardPlan, TheOrderIsAPermutationThatKeepsEveryEdge) {
  ForRandomPlans([](const AttentionProblem&, const Machine& machine, const ForwardPlan& plan) {
    const core::TaskGraph& graph = plan.graph;
    const auto tasks = static_cast<size_t>(graph.task_count);
    ASSERT_EQ(graph.workers(), machine.workers);
    ASSERT_EQ(graph.range_begin.front(), 0);
    ASSERT_EQ(graph.range_begin.back(), graph.task_count);
    ASSERT_TRUE(std::is_sorted(graph.range_begin.begin(), graph.range_begin.end()));
    std::vector<int64_t> position(tasks, -1);
    for (int64_t p = 0; p < graph.task_count; ++p) {
      const auto task = static_cast<size_t>(graph.TaskAt(p));
      ASSERT_LT(task, tasks);
      ASSERT_EQ(position[task], -1) << "task " << task << " is claimed twice";
      position[task] = p;
    }
    if (graph.earliest_first) {
      ASSERT_TRUE(std::equal(position.begin(), position.end(), graph.position.begin(), graph.position.end()));
    }
    if (!graph.has_edges()) {
      ASSERT_TRUE(graph.predecessor_count.empty() && graph.successor_begin.empty());
      return;
    }
    ASSERT_EQ(graph.successor_begin.size(), tasks + 1);
    ASSERT_EQ(graph.successor_begin.back(), std::ssize(graph.successors));
    std::vector<int32_t> predecessors(tasks, 0);
    for (size_t task = 0; task < tasks; ++task) {
      for (int64_t e = graph.successor_begin[task]; e < graph.successor_begin[task + 1]; ++e) {
        const auto successor = static_cast<size_t>(graph.successors[static_cast<size_t>(e)]);
        ASSERT_LT(position[task], position[successor]) << task << " -> " << successor;
        ++predecessors[successor];
      }
    }
    ASSERT_EQ(predecessors, graph.predecessor_count);
  });
}

// The bits of a row depend on the key blocks in which its keys are computed.
TEST(ForwardPlan, KeyBlocksDoNotDependOnMachineOrBatch) {
  std::mt19937_64 random(11);
  for (int n = 0; n < 100; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    const int64_t block_k = ChooseTileShape(problem, MakeMachine(1)).block_k;
    AttentionProblem alone = problem;
    alone.sequences.resize(1);
    Machine other = MakeMachine(64, 2);
    other.l1_bytes = 48 << 10;
    other.l2_bytes = 2 << 20;
    EXPECT_EQ(ChooseTileShape(problem, other).block_k, block_k);
    EXPECT_EQ(ChooseTileShape(alone, MakeMachine(3)).block_k, block_k);
    EXPECT_EQ(block_k % 8, 0);
  }
}

TEST(ForwardPlan, PlansFor1And64WorkersHaveEqualTilesWhenTheirRowsAreEqual) {
  std::mt19937_64 random(13);
  int compared = 0;
  for (int n = 0; n < kRandomProblems; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    const ForwardPlan one = MakeForwardPlan(problem, MakeMachine(1));
    const ForwardPlan many = MakeForwardPlan(problem, MakeMachine(64, 2));
    EXPECT_EQ(one.flops, many.flops);
    if (one.shape.block_q != many.shape.block_q) continue;
    ++compared;
    EXPECT_EQ(one.flops_visited, many.flops_visited);
    ASSERT_EQ(one.items.size(), many.items.size());
    for (size_t t = 0; t < one.items.size(); ++t) {
      const ForwardItem &a = one.items[t], &b = many.items[t];
      ASSERT_EQ(std::tuple(a.sequence, a.head_kv, a.head_begin, a.heads, a.row_begin, a.row_end, a.cost),
                std::tuple(b.sequence, b.head_kv, b.head_begin, b.heads, b.row_begin, b.row_end, b.cost));
      ASSERT_EQ(a.keys, b.keys);
      ASSERT_EQ(a.slot < 0, b.slot < 0);
    }
  }
  EXPECT_GT(compared, kRandomProblems / 4);
}

TEST(ForwardPlan, FlopsAreThoseOfKeptAndOfAllPairs) {
  ForRandomPlans([](const AttentionProblem& problem, const Machine&, const ForwardPlan& plan) {
    double kept = 0, all = 0;
    for (const Sequence& s : problem.sequences) {
      for (int64_t row = 0; row < s.sq; ++row) kept += static_cast<double>(s.rule.Keys(row).size());
      all += static_cast<double>(s.sq * s.sk);
    }
    const auto per_pair = static_cast<double>(problem.heads * 2 * (problem.d + problem.d_rope + problem.dv));
    ASSERT_DOUBLE_EQ(plan.flops, kept * per_pair);
    ASSERT_DOUBLE_EQ(plan.flops_full, all * per_pair);
    ASSERT_GE(plan.flops_visited, plan.flops);
    ASSERT_LE(plan.flops_visited, plan.flops_full);
  });
}

TEST(ForwardPlan, CausalVisitsLittleMoreThanItKeeps) {
  const ForwardPlan plan = MakeForwardPlan(
      MakeProblem({.lengths = {{4096, 4096}}, .heads = 8, .heads_kv = 8, .mask = Mask::Causal()}), MakeMachine(2));
  EXPECT_LE(plan.flops_visited, 0.51 * plan.flops_full);
}

TEST(ForwardPlan, AWindowOf512VisitsAtLeast94PercentUsefulPairs) {
  const ForwardPlan plan = MakeForwardPlan(
      MakeProblem({.lengths = {{8192, 8192}}, .heads = 8, .heads_kv = 8, .mask = Mask::Band(511, 0)}), MakeMachine(2));
  EXPECT_GE(plan.flops, 0.93 * plan.flops_visited);
}

TEST(ForwardPlan, CostIsTheBlocksVisitedByStripsAndAtLeastOne) {
  const ForwardPlan causal = MakeForwardPlan(
      MakeProblem({.lengths = {{512, 512}}, .d = 128, .dv = 128, .mask = Mask::Causal()}), MakeMachine(1));
  ASSERT_EQ(causal.shape.block_q, 128);
  ASSERT_EQ(causal.shape.block_k, 256);
  // A tile has four strips. The strips of rows below 256 need only the first key block, and the others also the second.
  std::vector<int64_t> costs;
  for (const ForwardItem& item : causal.items) costs.push_back(item.cost);
  EXPECT_EQ(costs, (std::vector<int64_t>{4, 4, 8, 8}));

  const ForwardPlan no_keys = MakeForwardPlan(MakeProblem({.lengths = {{300, 0}}}), MakeMachine(1));
  for (const ForwardItem& item : no_keys.items) EXPECT_EQ(item.cost, 1);
}

TEST(ForwardPlan, SequencesWithoutRowsGiveNoTilesAndWithoutKeysGiveTilesThatOnlyWrite) {
  const ForwardPlan plan = MakeForwardPlan(
      MakeProblem({.lengths = {{0, 5}, {7, 0}, {0, 0}}, .heads = 2, .heads_kv = 2, .dense = false}), MakeMachine(4));
  ASSERT_EQ(plan.items.size(), 2U);
  for (const ForwardItem& item : plan.items) {
    EXPECT_EQ(item.sequence, 1);
    EXPECT_EQ(item.row_end - item.row_begin, 7);
    EXPECT_TRUE(item.keys.empty());
  }
  EXPECT_TRUE(plan.packs.empty());
  EXPECT_EQ(plan.kv_slots, 0);
}

TEST(ForwardPlan, ACallWithoutRowsHasNoTasks) {
  for (const int workers : {1, 8}) {
    const ForwardPlan plan = MakeForwardPlan(MakeProblem({.lengths = {{0, 5}}}), MakeMachine(workers));
    EXPECT_EQ(plan.graph.task_count, 0);
    EXPECT_EQ(plan.graph.workers(), workers);
    EXPECT_EQ(plan.graph.range_begin.back(), 0);
    EXPECT_EQ(plan.efficiency, 1);
  }
}

TEST(ForwardPlan, FewQueryRowsFoldTheHeadsOfAGroup) {
  const ForwardPlan plan =
      MakeForwardPlan(MakeProblem({.lengths = {{1, 512}}, .heads = 32, .heads_kv = 8}), MakeMachine(1));
  ASSERT_EQ(plan.items.size(), 8U);
  for (const ForwardItem& item : plan.items) {
    EXPECT_EQ(item.heads, 4);
    EXPECT_EQ(item.head_begin, 4 * item.head_kv);
  }
}

TEST(ForwardPlan, AGroupTooLargeForOneTileIsFoldedInEvenChunks) {
  const ForwardPlan plan =
      MakeForwardPlan(MakeProblem({.lengths = {{20, 64}}, .heads = 11, .heads_kv = 1}), MakeMachine(1));
  std::vector<int32_t> heads;
  for (const ForwardItem& item : plan.items) heads.push_back(item.heads);
  EXPECT_EQ(heads, (std::vector<int32_t>{6, 5}));
}

TEST(ForwardPlan, ManyQueryRowsKeepHeadsApart) {
  const ForwardPlan plan =
      MakeForwardPlan(MakeProblem({.lengths = {{64, 64}}, .heads = 4, .heads_kv = 1}), MakeMachine(1));
  ASSERT_EQ(plan.items.size(), 4U);
  for (const ForwardItem& item : plan.items) EXPECT_EQ(item.heads, 1);
}

TEST(ForwardPlan, CausalHeadsAreClaimedHeavyRowsFirst) {
  const ForwardPlan plan = MakeForwardPlan(
      MakeProblem({.lengths = {{2048, 2048}}, .heads = 2, .heads_kv = 2, .mask = Mask::Causal()}), MakeMachine(2));
  for (int64_t p = plan.graph.range_begin[0]; p + 1 < plan.graph.range_begin[1]; ++p) {
    EXPECT_GE(plan.items[static_cast<size_t>(plan.graph.TaskAt(p))].cost,
              plan.items[static_cast<size_t>(plan.graph.TaskAt(p + 1))].cost);
  }
  EXPECT_EQ(plan.items[static_cast<size_t>(plan.graph.TaskAt(0))].row_end, 2048);
}

// In the simulation, workers with ranges of their own would be busy for 68 % of the time at most.
TEST(ForwardPlan, ManyWorkersTakeTheLongestTileOfFewPackedCausalHeads) {
  for (const int workers : {64, 96, 128}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    const AttentionProblem problem = MakeProblem({.lengths = {{2048, 2048}},
                                                  .heads = 16,
                                                  .heads_kv = 16,
                                                  .d = 128,
                                                  .dv = 128,
                                                  .mask = Mask::Causal(),
                                                  .dense = false});
    const ForwardPlan plan = MakeForwardPlan(problem, MakeMachine(workers, 1));
    ASSERT_TRUE(plan.graph.shared_claims && plan.graph.earliest_first);
    EXPECT_GT(plan.efficiency, 0.9);
    ASSERT_EQ(std::ssize(plan.worker_of), plan.graph.task_count);
    const auto packs = static_cast<int64_t>(plan.packs.size());
    for (int64_t p = 0; p <= packs; ++p) {  // all packs, and then their join
      EXPECT_GE(plan.graph.TaskAt(p), std::ssize(plan.items));
    }
    const auto keys_of = [&](int64_t p) {
      return plan.items.at(static_cast<size_t>(plan.graph.TaskAt(p))).keys.size();
    };
    EXPECT_GE(keys_of(packs + 1), 2048 - plan.shape.block_q);  // the last tile of a head may have few rows
    EXPECT_EQ(keys_of(plan.graph.task_count - 1), plan.items.front().keys.size());
  }
}

// With several NUMA nodes, each worker keeps its own range of tiles, so that a head stays on its node. With reused
// slots, each worker keeps its own range too, because heads with the same slot wait for each other.
TEST(ForwardPlan, RangesStayWithSeveralNodesOrReusedSlots) {
  const auto problem = [](int64_t heads) {
    return MakeProblem({.lengths = {{2048, 2048}},
                        .heads = heads,
                        .heads_kv = heads,
                        .d = 128,
                        .dv = 128,
                        .mask = Mask::Causal(),
                        .dense = false});
  };
  EXPECT_FALSE(MakeForwardPlan(problem(16), MakeMachine(64, 2)).graph.shared_claims);
  const ForwardPlan reuses = MakeForwardPlan(problem(16), MakeMachine(3, 1));
  EXPECT_LT(reuses.kv_slots, 16);
  EXPECT_FALSE(reuses.graph.shared_claims);
}

TEST(ForwardPlan, OneWorkerWalksTheItemsAsTheyStand) {
  const ForwardPlan plan =
      MakeForwardPlan(MakeProblem({.lengths = {{2048, 2048}}, .mask = Mask::Causal()}), MakeMachine(1));
  EXPECT_TRUE(plan.graph.order.empty());
  EXPECT_EQ(plan.graph.range_begin, (std::vector<int64_t>{0, std::ssize(plan.items)}));
  EXPECT_EQ(plan.efficiency, 1);
  EXPECT_EQ(plan.load, std::vector<double>{1});
}

TEST(ForwardPlan, ASmallCallIsOneTaskForAnyNumberOfWorkers) {
  for (const int workers : {1, 2, 64}) {
    const ForwardPlan plan = MakeForwardPlan(MakeProblem({.lengths = {{64, 64}}}), MakeMachine(workers));
    EXPECT_EQ(plan.graph.task_count, 1);
    EXPECT_EQ(plan.shape.block_q, 64);
  }
}

TEST(ForwardPlan, HeadsStayOnOneNodeWhereTheyAreMany) {
  const ForwardPlan plan =
      MakeForwardPlan(MakeProblem({.lengths = {{2048, 2048}}, .heads = 30, .heads_kv = 30}), MakeMachine(128, 2));
  ASSERT_EQ(plan.graph.range_node.size(), 128U);
  std::map<int32_t, int16_t> node_of_head;
  for (size_t worker = 0; worker < 128; ++worker) {
    EXPECT_EQ(plan.graph.range_node[worker], worker < 64 ? 0 : 1);
    for (int64_t p = plan.graph.range_begin[worker]; p < plan.graph.range_begin[worker + 1]; ++p) {
      const int32_t head = plan.items[static_cast<size_t>(plan.graph.TaskAt(p))].head_kv;
      const int16_t node = plan.graph.range_node[worker];
      EXPECT_EQ(node_of_head.try_emplace(head, node).first->second, node) << "head " << head;
    }
  }
}

TEST(ForwardPlan, OneHeadOnTwoNodesIsSplitRatherThanLeavingANodeIdle) {
  const ForwardPlan plan = MakeForwardPlan(MakeProblem({.lengths = {{16384, 16384}}}), MakeMachine(16, 2));
  EXPECT_GT(plan.efficiency, 0.9);
}

TEST(ForwardPlan, HugeTilesAreMeasuredWithoutOverflow) {
  const int64_t keys = int64_t{1} << 40;  // with more keys the work would be refused
  for (const int workers : {1, 8}) {
    const ForwardPlan plan = MakeForwardPlan(
        MakeProblem({.lengths = {{100000, keys}}, .d = 1, .dv = 1, .mask = Mask::Causal()}), MakeMachine(workers));
    EXPECT_GT(plan.efficiency, 0.8);
    EXPECT_NEAR(plan.flops_full, 4 * 1e5 * static_cast<double>(keys), 1e-9 * plan.flops_full);
  }
}

TEST(ForwardPlan, BringsRowsIntoALargeL1) {
  std::mt19937_64 random(8);
  const AttentionProblem problem = RandomProblem(random);
  for (const auto& [kib, brings] : {std::pair{32, false}, {48, true}, {64, true}}) {
    Machine machine = MakeMachine(2, 1);
    machine.l1_bytes = int64_t{kib} << 10;
    EXPECT_EQ(MakeForwardPlan(problem, machine).brings_rows, brings) << kib;
  }
}

}  // namespace
}  // namespace fa::tiling
