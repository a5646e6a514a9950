// Tests properties of every plan of the backward. There is a tile exactly where the mask keeps a pair. Every row and
// every key has one order of additions. No choice that affects bits depends on the machine.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <set>
#include <tuple>

#include "tests/tiling/sample_problems.h"
#include "tiling/backward/make_backward_plan.h"

namespace fa::tiling {
namespace {

using ColumnId = std::tuple<int32_t, int32_t, int64_t>;  // (sequence, kv head, first key)
using RowsId = std::tuple<int32_t, int32_t, int64_t>;    // (sequence, query head, first row)

ColumnId ColumnOf(const BackwardItem& item) { return {item.sequence, item.head_kv, item.key_begin}; }
RowsId RowsOf(const BackwardItem& item) { return {item.sequence, item.head, item.row_begin}; }
bool HasRows(const BackwardItem& item) { return item.row_begin < item.row_end; }
bool HasKeys(const BackwardItem& item) { return item.key_begin < item.key_end; }
Interval Rows(const BackwardItem& item) { return {item.row_begin, item.row_end}; }
Interval Keys(const BackwardItem& item) { return {item.key_begin, item.key_end}; }

// Calls visit(problem, machine, plan) for random problems and machines.
template <typename Visit>
void ForRandomBackwardPlans(Visit visit) {
  std::mt19937_64 random(29);
  const int worker_counts[] = {1, 2, 3, 8, 64, 128};
  for (int n = 0; n < 300; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    Machine machine = MakeMachine(worker_counts[n % 6]);
    machine.strip_rows = std::array{16, 32, 48}[static_cast<size_t>(n % 3)];
    if (n % 5 == 0) machine.isa = Isa::kPortable;
    SCOPED_TRACE(Text(problem) + " workers " + std::to_string(machine.workers));
    visit(problem, machine, MakeBackwardPlan(problem, machine));
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<std::vector<int32_t>> TilesBy(const BackwardPlan& plan, bool columns) {
  std::map<std::tuple<int32_t, int32_t, int64_t>, std::vector<int32_t>> chains;
  for (size_t t = 0; t < plan.items.size(); ++t) {
    const BackwardItem& item = plan.items[t];
    if (columns ? HasKeys(item) : HasRows(item)) {
      chains[columns ? ColumnOf(item) : RowsOf(item)].push_back(static_cast<int32_t>(t));
    }
  }
  std::vector<std::vector<int32_t>> result;
  for (auto& [id, tiles] : chains) result.push_back(std::move(tiles));
  return result;
}

// Returns the documented order of additions to each column: query heads ascend, and rows ascend within a head.
std::vector<std::vector<int32_t>> ColumnChains(const BackwardPlan& plan) {
  std::vector<std::vector<int32_t>> chains = TilesBy(plan, /*columns=*/true);
  for (std::vector<int32_t>& chain : chains) {
    std::sort(chain.begin(), chain.end(), [&](int32_t a, int32_t b) {
      const BackwardItem &x = plan.items[static_cast<size_t>(a)], &y = plan.items[static_cast<size_t>(b)];
      return std::tuple(x.head, x.row_begin) < std::tuple(y.head, y.row_begin);
    });
  }
  return chains;
}

// Returns the documented order of additions to each row group. Columns ascend, or descend if the first row does not see
// the last column.
std::vector<std::vector<int32_t>> RowChains(const AttentionProblem& problem, const BackwardPlan& plan) {
  std::vector<std::vector<int32_t>> chains = TilesBy(plan, /*columns=*/false);
  for (std::vector<int32_t>& chain : chains) {
    const RowRule& rule =
        problem.sequences[static_cast<size_t>(plan.items[static_cast<size_t>(chain[0])].sequence)].rule;
    const bool descending = rule.Keys(0).end < rule.sk;
    std::sort(chain.begin(), chain.end(), [&](int32_t a, int32_t b) {
      const int64_t x = plan.items[static_cast<size_t>(a)].key_begin, y = plan.items[static_cast<size_t>(b)].key_begin;
      return descending ? x > y : x < y;
    });
  }
  return chains;
}

/// Returns the first keys of the columns, each of `block_k` keys, in which the rows keep a key.
std::set<int64_t> KeptColumns(const RowRule& rule, Interval rows, int64_t block_k) {
  std::set<int64_t> kept;
  for (int64_t row = rows.begin; row < std::min(rows.end, rule.sq); ++row) {
    const Interval keys = rule.Keys(row);
    for (int64_t key = keys.begin / block_k * block_k; key < keys.end && !keys.empty(); key += block_k) {
      kept.insert(key);
    }
  }
  return kept;
}

TEST(BackwardPlan, ATileStandsWhereAPairIsKeptAndOnlyThere) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine&, const BackwardPlan& plan) {
    std::set<std::tuple<RowsId, int64_t>> tiles;
    for (const BackwardItem& item : plan.items) {
      ASSERT_EQ(item.head / problem.group(), item.head_kv);
      if (!HasRows(item) || !HasKeys(item)) continue;
      const RowRule& rule = problem.sequences[static_cast<size_t>(item.sequence)].rule;
      ASSERT_EQ(Rows(item), (Interval{item.row_begin, std::min(item.row_begin + plan.block_q, rule.sq)}));
      ASSERT_EQ(Keys(item), (Interval{item.key_begin, std::min(item.key_begin + plan.block_k, rule.sk)}));
      ASSERT_EQ(item.row_begin % plan.block_q, 0);
      ASSERT_EQ(item.key_begin % plan.block_k, 0);
      ASSERT_NE(rule.Classify(Rows(item), Keys(item)), TileClass::kNone);
      ASSERT_GT(item.cost, 0);
      ASSERT_TRUE(tiles.insert({RowsOf(item), item.key_begin}).second) << "twice";
    }
    for (int32_t s = 0; s < std::ssize(problem.sequences); ++s) {
      const RowRule& rule = problem.sequences[static_cast<size_t>(s)].rule;
      for (int64_t group = 0; group < rule.sq; group += plan.block_q) {
        for (const int64_t key : KeptColumns(rule, {group, group + plan.block_q}, plan.block_k)) {
          for (int32_t head = 0; head < problem.heads; ++head) {
            ASSERT_TRUE(tiles.contains({RowsId{s, head, group}, key}))
                << "sequence " << s << " head " << head << " row group " << group << " key " << key;
          }
        }
      }
    }
  });
}

TEST(BackwardPlan, EveryRowGroupAndEveryColumnIsWrittenOnce) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine&, const BackwardPlan& plan) {
    std::map<RowsId, int> rows;
    std::map<ColumnId, int> columns;
    for (const BackwardItem& item : plan.items) {
      ASSERT_TRUE(HasRows(item) || HasKeys(item));
      ASSERT_TRUE(HasRows(item) || (!item.first_of_rows && !item.last_of_rows));
      ASSERT_TRUE(HasKeys(item) || (!item.first_of_column && !item.last_of_column));
      if (HasRows(item)) rows[RowsOf(item)] += item.last_of_rows;
      if (HasKeys(item)) columns[ColumnOf(item)] += item.last_of_column;
    }
    for (const auto& [id, writes] : rows) ASSERT_EQ(writes, 1);
    for (const auto& [id, writes] : columns) ASSERT_EQ(writes, 1);
    int64_t row_groups = 0, key_blocks = 0;
    for (const Sequence& sequence : problem.sequences) {
      row_groups += problem.heads * ((sequence.sq + plan.block_q - 1) / plan.block_q);
      key_blocks += problem.heads_kv * ((sequence.sk + plan.block_k - 1) / plan.block_k);
    }
    ASSERT_EQ(std::ssize(rows), row_groups);
    ASSERT_EQ(std::ssize(columns), key_blocks);
  });
}

TEST(BackwardPlan, FirstAndLastAreTheEndsOfTheChains) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine&, const BackwardPlan& plan) {
    for (const auto& chain : ColumnChains(plan)) {
      for (const int32_t tile : chain) {
        ASSERT_EQ(plan.items[static_cast<size_t>(tile)].first_of_column, tile == chain.front());
        ASSERT_EQ(plan.items[static_cast<size_t>(tile)].last_of_column, tile == chain.back());
      }
    }
    for (const auto& chain : RowChains(problem, plan)) {
      for (const int32_t tile : chain) {
        ASSERT_EQ(plan.items[static_cast<size_t>(tile)].first_of_rows, tile == chain.front());
        ASSERT_EQ(plan.items[static_cast<size_t>(tile)].last_of_rows, tile == chain.back());
      }
    }
  });
}

TEST(BackwardPlan, EdgesBetweenTilesAreTheTwoOrdersAndTheColumnsOneComesFirst) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine&, const BackwardPlan& plan) {
    const core::TaskGraph& graph = plan.graph;
    const auto tiles = static_cast<int32_t>(plan.items.size());
    std::vector<std::vector<int32_t>> wanted(static_cast<size_t>(tiles));
    for (const auto& chains : {ColumnChains(plan), RowChains(problem, plan)}) {
      for (const auto& chain : chains) {
        for (size_t i = 1; i < chain.size(); ++i) wanted[static_cast<size_t>(chain[i - 1])].push_back(chain[i]);
      }
    }
    // In a group of query heads, the first tile of a row group waits for the last tile of the same row group of the
    // previous query head.
    if (plan.head_by_head) {
      std::map<RowsId, int32_t> last;
      for (const auto& chain : RowChains(problem, plan)) {
        const auto [sequence, head, row] = RowsOf(plan.items[static_cast<size_t>(chain.front())]);
        last[{sequence, head, row}] = chain.back();
        if (head % problem.group() == 0) continue;
        wanted[static_cast<size_t>(last.at({sequence, head - 1, row}))].push_back(chain.front());
      }
    }
    for (size_t t = 0; graph.has_edges() && t < wanted.size(); ++t) {
      std::vector<int32_t> successors;
      for (int64_t e = graph.successor_begin[t]; e < graph.successor_begin[t + 1]; ++e) {
        const int32_t successor = graph.successors[static_cast<size_t>(e)];
        if (successor < tiles) successors.push_back(successor);
      }
      ASSERT_EQ(successors, wanted[t]) << "tile " << t;
    }
    if (!graph.has_edges()) {
      for (const auto& successors : wanted) ASSERT_TRUE(successors.empty());
    }
  });
}

TEST(BackwardPlan, AWorkerWithAPairOfItsOwnTakesOneQueryHeadAfterTheOther) {
  const AttentionProblem grouped =
      MakeProblem({.lengths = {{512, 512}}, .heads = 8, .heads_kv = 2, .mask = Mask::Causal()});
  const auto heads_of_pair = [](const BackwardPlan& plan) {
    std::vector<int64_t> heads;
    for (const BackwardItem& item : plan.items) {
      if (item.head_kv == 0) heads.push_back(item.head);
    }
    return heads;
  };
  for (const int workers : {1, 2}) {
    const BackwardPlan plan = MakeBackwardPlan(grouped, MakeMachine(workers));
    EXPECT_TRUE(plan.head_by_head);
    EXPECT_EQ(plan.slot_rows, 512);
    EXPECT_EQ(plan.slots, workers);
    const std::vector<int64_t> heads = heads_of_pair(plan);
    EXPECT_TRUE(std::is_sorted(heads.begin(), heads.end()));
    EXPECT_EQ(heads.back(), 3);
  }
  // If workers share a (sequence, kv head), its columns are as long as possible, so that starting them costs little.
  const BackwardPlan shared = MakeBackwardPlan(grouped, MakeMachine(8));
  EXPECT_FALSE(shared.head_by_head);
  EXPECT_EQ(shared.slot_rows, 4 * 512);
  const AttentionProblem one_each =
      MakeProblem({.lengths = {{512, 512}}, .heads = 8, .heads_kv = 8, .mask = Mask::Causal()});
  EXPECT_FALSE(MakeBackwardPlan(one_each, MakeMachine(1)).head_by_head);
}

TEST(BackwardPlan, ClaimsAreOneTopologicalListThatHoldsEveryTaskOnce) {
  ForRandomBackwardPlans([](const AttentionProblem&, const Machine& machine, const BackwardPlan& plan) {
    const core::TaskGraph& graph = plan.graph;
    const auto tasks = static_cast<size_t>(graph.task_count);
    ASSERT_TRUE(graph.shared_claims);
    ASSERT_EQ(graph.workers(), machine.workers);
    ASSERT_EQ(graph.range_begin.front(), 0);
    for (size_t worker = 1; worker < graph.range_begin.size(); ++worker) {
      ASSERT_EQ(graph.range_begin[worker], graph.task_count);
    }
    std::vector<int64_t> position(tasks, -1);
    for (int64_t p = 0; p < graph.task_count; ++p) {
      int64_t& place = position.at(static_cast<size_t>(graph.TaskAt(p)));
      ASSERT_EQ(place, -1);
      place = p;
    }
    ASSERT_TRUE(std::is_sorted(position.begin(), position.begin() + std::ssize(plan.items))) << "ids in claim order";
    if (!graph.has_edges()) return;
    ASSERT_EQ(graph.successor_begin.size(), tasks + 1);
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

// Returns the terms of every sum in order, without the numbers of tasks.
template <typename Chains>
auto Contents(const BackwardPlan& plan, const Chains& chains) {
  using Tile = std::tuple<int32_t, int32_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool, bool>;
  std::vector<std::vector<Tile>> contents;
  for (const auto& chain : chains) {
    contents.emplace_back();
    for (const int32_t tile : chain) {
      const BackwardItem& i = plan.items[static_cast<size_t>(tile)];
      contents.back().emplace_back(i.sequence, i.head, i.row_begin, i.row_end, i.key_begin, i.key_end, i.cost,
                                   i.first_of_rows, i.last_of_rows, i.first_of_column, i.last_of_column);
    }
  }
  return contents;
}

TEST(BackwardPlan, PlansFor1And64WorkersAddUpTheSameInTheSameOrder) {
  std::mt19937_64 random(31);
  int compared = 0;
  for (int n = 0; n < 300; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    SCOPED_TRACE(Text(problem));
    const BackwardPlan one = MakeBackwardPlan(problem, MakeMachine(1));
    const BackwardPlan many = MakeBackwardPlan(problem, MakeMachine(64, 2));
    ASSERT_EQ(one.block_k, many.block_k);
    EXPECT_EQ(one.flops, many.flops);
    if (one.block_q != many.block_q) continue;
    ++compared;
    ASSERT_EQ(one.items.size(), many.items.size());
    ASSERT_EQ(Contents(one, ColumnChains(one)), Contents(many, ColumnChains(many)));
    ASSERT_EQ(Contents(one, RowChains(problem, one)), Contents(many, RowChains(problem, many)));
  }
  EXPECT_GT(compared, 100);
}

TEST(BackwardPlan, KeyBlocksFollowHeadSizesAndIsaAlone) {
  const auto block_k = [](int64_t d, int64_t dv, Machine machine, int64_t s = 300) {
    return MakeBackwardPlan(MakeProblem({.lengths = {{s, s}}, .d = d, .dv = dv}), machine).block_k;
  };
  Machine large = MakeMachine(64, 2);
  large.l2_bytes = 4 << 20;
  for (const Machine& machine : {MakeMachine(1), large}) {
    for (const int64_t s : {1, 300, 3000}) {
      EXPECT_EQ(block_k(64, 64, machine, s), 128);
      EXPECT_EQ(block_k(128, 128, machine, s), 128);
      EXPECT_EQ(block_k(192, 128, machine, s), 128);
      EXPECT_EQ(block_k(256, 256, machine, s), 64);
      EXPECT_EQ(block_k(512, 512, machine, s), 32);
      EXPECT_EQ(block_k(1024, 1024, machine, s), 32);
    }
  }
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2}) {
    Machine machine = MakeMachine(2);
    machine.isa = isa;
    EXPECT_EQ(block_k(64, 64, machine), 128);
    EXPECT_EQ(block_k(128, 128, machine), 128);
    EXPECT_EQ(block_k(256, 256, machine), 64);
  }
}

TEST(BackwardPlan, RowsOfATileAreWholeStripsAndNoMoreThanThereAre) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine& machine, const BackwardPlan& plan) {
    ASSERT_EQ(plan.block_q % machine.strip_rows, 0);
    ASSERT_LT(plan.block_q, 128 + machine.strip_rows);
    int64_t longest = 1;
    for (const Sequence& sequence : problem.sequences) longest = std::max(longest, sequence.sq);
    ASSERT_LT(plan.block_q, longest + machine.strip_rows);
  });
}

TEST(BackwardPlan, ColumnsOfOneFullHeadGetSmallerTilesWhenManyWorkersShareIt) {
  const auto block_q = [](Mask mask, int workers, int64_t heads = 1) {
    return MakeBackwardPlan(MakeProblem({.lengths = {{2048, 2048}},
                                         .heads = heads,
                                         .heads_kv = heads,
                                         .d = 128,
                                         .dv = 128,
                                         .mask = std::move(mask)}),
                            MakeMachine(workers))
        .block_q;
  };
  EXPECT_EQ(block_q({}, 1), 128);
  EXPECT_EQ(block_q({}, 2), 128);
  EXPECT_EQ(block_q({}, 16), 32);
  EXPECT_EQ(block_q({}, 16, 16), 128);
  EXPECT_EQ(block_q(Mask::Causal(), 16), 128);
}

// In a causal head, the row groups of a column run one after the other, and so do the columns of a row group. The tile
// unit's tiles of 256 rows have half as many row groups as columns.
TEST(BackwardPlan, CausalHeadsOnTheTileUnitGetSmallerTilesWhenManyWorkersShareThem) {
  AttentionProblem problem =
      MakeProblem({.lengths = {{4096, 4096}}, .heads = 4, .heads_kv = 4, .d = 128, .dv = 128, .mask = Mask::Causal()});
  problem.dtype = DType::kBF16;
  const auto plan = [&](int workers) {
    Machine machine = MakeMachine(workers);
    machine.isa = Isa::kAvx512Amx;
    machine.strip_rows = 32;
    return MakeBackwardPlan(problem, machine);
  };
  EXPECT_EQ(plan(4).block_q, 256);
  EXPECT_EQ(plan(16).block_q, 256);
  EXPECT_EQ(plan(64).block_q, 128);
  EXPECT_GE(plan(64).efficiency, 0.69);  // 0.52 with tiles of 256 rows
  EXPECT_GE(plan(128).efficiency, 0.5);  // 0.26 with tiles of 256 rows
}

TEST(BackwardPlan, SlotsHoldTheLargestPair) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine& machine, const BackwardPlan& plan) {
    int64_t pairs = 0;
    for (const Sequence& sequence : problem.sequences) {
      if (sequence.sq == 0 && sequence.sk == 0) continue;
      pairs += problem.heads_kv;
      ASSERT_GE(plan.slot_rows, (plan.head_by_head ? 1 : problem.group()) * sequence.sq);
      ASSERT_GE(plan.slot_keys, sequence.sk);
    }
    ASSERT_EQ(plan.slot_rows % plan.block_q, 0);
    ASSERT_EQ(plan.slot_keys % plan.block_k, 0);
    ASSERT_LE(plan.slots, std::min<int64_t>(pairs, machine.workers));
    ASSERT_EQ(plan.slots == 0, plan.items.empty());
    for (const BackwardItem& item : plan.items) {
      ASSERT_GE(item.slot, 0);
      ASSERT_LT(item.slot, plan.slots);
    }
  });
}

TEST(BackwardPlan, FlopsAreThoseOfKeptAndOfAllPairs) {
  ForRandomBackwardPlans([](const AttentionProblem& problem, const Machine&, const BackwardPlan& plan) {
    double kept = 0, all = 0;
    for (const Sequence& s : problem.sequences) {
      for (int64_t row = 0; row < s.sq; ++row) kept += static_cast<double>(s.rule.Keys(row).size());
      all += static_cast<double>(s.sq * s.sk);
    }
    const auto per_pair = static_cast<double>(problem.heads * 2 * (3 * (problem.d + problem.d_rope) + 2 * problem.dv));
    ASSERT_DOUBLE_EQ(plan.flops, kept * per_pair);
    ASSERT_DOUBLE_EQ(plan.flops_full, all * per_pair);
    ASSERT_GE(plan.flops_visited, plan.flops);
    ASSERT_LE(plan.flops_visited, plan.flops_full);
  });
}

TEST(BackwardPlan, CostIsTheGroupsOfAStripAndEightKeysVisited) {
  const BackwardPlan plan = MakeBackwardPlan(
      MakeProblem({.lengths = {{256, 256}}, .d = 128, .dv = 128, .mask = Mask::Causal()}), MakeMachine(1));
  // The last column comes first. In its diagonal tile the four strips see 32, 64, 96 and 128 keys.
  std::vector<std::tuple<int64_t, int64_t, int64_t>> tiles;
  for (const BackwardItem& item : plan.items) tiles.emplace_back(item.key_begin, item.row_begin, item.cost);
  EXPECT_EQ(tiles, (std::vector<std::tuple<int64_t, int64_t, int64_t>>{{128, 128, 40}, {0, 0, 40}, {0, 128, 64}}));
}

TEST(BackwardPlan, RowsWithoutKeysAndColumnsWithoutRowsAreOnlyWritten) {
  const AttentionProblem problem = MakeProblem(
      {.lengths = {{0, 200}, {7, 0}, {0, 0}, {300, 300}}, .heads = 4, .heads_kv = 2, .mask = Mask::Band(-150, 400)});
  for (const int workers : {1, 8}) {
    const BackwardPlan plan = MakeBackwardPlan(problem, MakeMachine(workers));
    int rows_only = 0, keys_only = 0;
    for (const BackwardItem& item : plan.items) {
      ASSERT_NE(item.sequence, 2);
      if (!HasRows(item)) {
        ++keys_only;
        EXPECT_TRUE(item.first_of_column && item.last_of_column && item.cost == 0);
      } else if (!HasKeys(item)) {
        ++rows_only;
        EXPECT_TRUE(item.first_of_rows && item.last_of_rows && item.cost == 0);
      }
    }
    // In sequence 0, each kv head has two columns whose keys no row keeps. In sequence 3, rows keep only keys from 150
    // on, and rows from 150 on keep no keys.
    EXPECT_EQ(keys_only, 2 * 2 + 2 * 1);
    const int64_t row_groups = (300 + plan.block_q - 1) / plan.block_q,
                  with_keys = (150 + plan.block_q - 1) / plan.block_q;
    EXPECT_EQ(rows_only, 4 * 1 + 4 * (row_groups - with_keys));
  }
}

TEST(BackwardPlan, ACallWithoutRowsAndKeysHasNoTasks) {
  for (const int workers : {1, 8}) {
    for (const auto& lengths : {std::vector<std::pair<int64_t, int64_t>>{{0, 0}}, {}}) {
      const BackwardPlan plan = MakeBackwardPlan(MakeProblem({.lengths = lengths}), MakeMachine(workers));
      EXPECT_EQ(plan.graph.task_count, 0);
      EXPECT_EQ(plan.graph.workers(), workers);
      EXPECT_FALSE(plan.graph.has_edges());
      EXPECT_EQ(plan.efficiency, 1);
    }
  }
}

TEST(BackwardPlan, ASmallCallIsOneTaskForAnyNumberOfWorkers) {
  for (const int workers : {1, 2, 64}) {
    const BackwardPlan plan = MakeBackwardPlan(MakeProblem({.lengths = {{64, 64}}}), MakeMachine(workers));
    EXPECT_EQ(plan.graph.task_count, 1);
    EXPECT_FALSE(plan.graph.has_edges());
    EXPECT_EQ(plan.slot_rows, 64);
    EXPECT_EQ(plan.slot_keys, 128);
  }
}

TEST(BackwardPlan, MoreTilesThanTaskIdsAreRefused) {
  const int64_t s = int64_t{1} << 24;
  EXPECT_THROW((void)MakeBackwardPlan(MakeProblem({.lengths = {{s, s}}}), MakeMachine(2)), std::bad_alloc);
}

}  // namespace
}  // namespace fa::tiling
