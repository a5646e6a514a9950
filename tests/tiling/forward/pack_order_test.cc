// Tests which heads are packed, and when. In any order that the edges allow, a tile finds its head completely packed in
// its slot. In the claim order, workers hardly wait.
#include "tiling/forward/pack_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "support/each_case.h"
#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"
#include "tiling/row_cut.h"

namespace fa::tiling {
namespace {

using HeadId = std::pair<int32_t, int32_t>;  // (sequence, kv head)
using test::Axis;
using test::ForEachCase;

AttentionProblem PackedProblem(std::vector<std::pair<int64_t, int64_t>> lengths, int64_t heads, Mask mask = {}) {
  return MakeProblem({.lengths = std::move(lengths),
                      .heads = heads,
                      .heads_kv = heads,
                      .d = 128,
                      .dv = 128,
                      .mask = std::move(mask),
                      .dense = false});
}

// Runs a plan's tasks in any order that the edges allow. Checks that each slot has the packed panels that its tasks
// need.
class SlotMachine {
 public:
  explicit SlotMachine(const ForwardPlan& plan) : plan_(plan), slots_(static_cast<size_t>(plan.kv_slots)) {
    for (const PackItem& pack : plan.packs) rows_of_head_[{pack.sequence, pack.head_kv}] += Rows(pack);
    for (const ForwardItem& item : plan.items) ++tiles_of_head_[{item.sequence, item.head_kv}];
  }

  void Run(int32_t task) {
    const auto t = static_cast<size_t>(task);
    if (t < plan_.items.size()) {
      RunTile(plan_.items[t]);
    } else if (t < plan_.items.size() + plan_.packs.size()) {
      RunPack(plan_.packs[t - plan_.items.size()]);
    }
  }

 private:
  struct Slot {
    HeadId head{-1, -1};
    int64_t rows_packed = 0;
    int64_t tiles_left = 0;
  };

  static int64_t Rows(const PackItem& pack) { return pack.row_end - pack.row_begin; }

  void RunPack(const PackItem& pack) {
    Slot& slot = slots_.at(static_cast<size_t>(pack.slot));
    const HeadId head{pack.sequence, pack.head_kv};
    if (slot.head != head) {
      EXPECT_EQ(slot.tiles_left, 0) << "slot " << pack.slot << " is overwritten while in use";
      slot = {head, 0, tiles_of_head_[head]};
    }
    slot.rows_packed += Rows(pack);
  }

  void RunTile(const ForwardItem& item) {
    if (item.slot < 0) return;
    Slot& slot = slots_.at(static_cast<size_t>(item.slot));
    const HeadId head{item.sequence, item.head_kv};
    EXPECT_EQ(slot.head, head) << "slot " << item.slot << " holds another head";
    EXPECT_EQ(slot.rows_packed, rows_of_head_[head]) << "a tile runs before its head is packed";
    --slot.tiles_left;
  }

  const ForwardPlan& plan_;
  std::vector<Slot> slots_;
  std::map<HeadId, int64_t> rows_of_head_, tiles_of_head_;
};

void RunInRandomOrder(const ForwardPlan& plan, std::mt19937_64& random) {
  const core::TaskGraph& graph = plan.graph;
  std::vector<int32_t> waiting_for = graph.predecessor_count;
  waiting_for.resize(static_cast<size_t>(graph.task_count), 0);
  std::vector<int32_t> ready;
  for (int32_t task = 0; task < graph.task_count; ++task) {
    if (waiting_for[static_cast<size_t>(task)] == 0) ready.push_back(task);
  }
  SlotMachine slots(plan);
  int32_t ran = 0;
  for (; !ready.empty(); ++ran) {
    std::swap(ready[random() % ready.size()], ready.back());
    const auto task = static_cast<size_t>(ready.back());
    slots.Run(ready.back());
    ready.pop_back();
    if (!graph.has_edges()) continue;
    for (int64_t e = graph.successor_begin[task]; e < graph.successor_begin[task + 1]; ++e) {
      const int32_t successor = graph.successors[static_cast<size_t>(e)];
      if (--waiting_for[static_cast<size_t>(successor)] == 0) ready.push_back(successor);
    }
  }
  EXPECT_EQ(ran, graph.task_count) << "the edges have a cycle";
}

TEST(PackOrder, SlotsHoldTheRightHeadInEveryOrderThatTheEdgesAllow) {
  std::mt19937_64 random(17);
  int packing_plans = 0, reused = 0;
  for (int n = 0; n < 300; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    const int workers = 1 + static_cast<int>(random() % 9);
    const ForwardPlan plan = MakeForwardPlan(problem, MakeMachine(workers, n % 2 + 1));
    SCOPED_TRACE(Text(problem) + " workers " + std::to_string(workers));
    packing_plans += !plan.packs.empty();
    std::set<HeadId> packed_heads;
    for (const PackItem& pack : plan.packs) packed_heads.emplace(pack.sequence, pack.head_kv);
    reused += plan.kv_slots < std::ssize(packed_heads);
    ASSERT_LE(plan.kv_slots, std::min<int64_t>(workers + 1, std::ssize(packed_heads)));
    for (int run = 0; run < 4; ++run) RunInRandomOrder(plan, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(packing_plans, 50);
  EXPECT_GT(reused, 20);
}

TEST(PackOrder, PacksCoverOnceWhatTheStripsOfTheHeadVisit) {
  std::mt19937_64 random(19);
  for (int n = 0; n < 300; ++n) {
    const AttentionProblem problem = RandomProblem(random);
    const ForwardPlan plan = MakeForwardPlan(problem, MakeMachine(1 + n % 7));
    SCOPED_TRACE(Text(problem));
    std::map<HeadId, Interval> packed;
    for (const PackItem& pack : plan.packs) {
      ASSERT_LE(pack.row_end - pack.row_begin, 2048);
      const auto [entry, is_first] = packed.try_emplace({pack.sequence, pack.head_kv}, Interval{pack.row_begin, 0});
      if (!is_first) {
        ASSERT_EQ(pack.row_begin, entry->second.end);
      }
      entry->second.end = pack.row_end;
    }
    for (const ForwardItem& item : plan.items) {
      const auto entry = packed.find({item.sequence, item.head_kv});
      ASSERT_EQ(entry != packed.end(), item.slot >= 0);
      if (item.slot < 0 || item.keys.empty()) continue;
      const int64_t sk = problem.sequences[static_cast<size_t>(item.sequence)].sk;
      ASSERT_LE(entry->second.begin, item.keys.begin / kKeyStep * kKeyStep);
      ASSERT_GE(entry->second.end, std::min((item.keys.end + kKeyStep - 1) / kKeyStep * kKeyStep, sk));
      ASSERT_LE(entry->second.end, sk);
      ASSERT_LE(sk, plan.slot_rows);
    }
  }
}

TEST(PackOrder, DenseRowsAreNotPacked) {
  AttentionProblem problem = PackedProblem({{1024, 1024}}, 4);
  problem.k_in_place = problem.v_in_place = true;
  const ForwardPlan plan = MakeForwardPlan(problem, MakeMachine(4));
  EXPECT_TRUE(plan.packs.empty());
  EXPECT_FALSE(plan.pack_k || plan.pack_v || plan.graph.has_edges());
  EXPECT_EQ(plan.kv_slots, 0);
  EXPECT_EQ(plan.slot_rows, 0);
}

TEST(PackOrder, OnlyWhatIsNotDenseIsPacked) {
  AttentionProblem problem = PackedProblem({{1024, 1024}}, 4);
  problem.k_in_place = true;
  const ForwardPlan plan = MakeForwardPlan(problem, MakeMachine(4));
  EXPECT_FALSE(plan.pack_k);
  EXPECT_TRUE(plan.pack_v);
  EXPECT_EQ(plan.packs.size(), 4U * 4);  // 1024 rows are four chunks of 256; there are 4 heads
}

TEST(PackOrder, HeadsReadByFewStripsAreNotPacked) {
  EXPECT_TRUE(MakeForwardPlan(PackedProblem({{128, 4096}}, 4), MakeMachine(2)).packs.empty());
  EXPECT_FALSE(MakeForwardPlan(PackedProblem({{256, 4096}}, 4), MakeMachine(2)).packs.empty());
}

TEST(PackOrder, OnlyKeysInsideTheMaskArePacked) {
  // In a window of 64 keys that begins at the top left, rows 0..511 see no key beyond 511.
  const ForwardPlan plan = MakeForwardPlan(PackedProblem({{512, 8192}}, 1, Mask::BandTopLeft(63, 0)), MakeMachine(1));
  ASSERT_FALSE(plan.packs.empty());
  EXPECT_EQ(plan.packs.back().row_end, 512);
  EXPECT_EQ(plan.slot_rows, 8192);
}

TEST(PackOrder, OneWorkerPacksManyHeadsIntoOneSlot) {
  const ForwardPlan plan = MakeForwardPlan(PackedProblem({{1024, 1024}}, 16), MakeMachine(1));
  EXPECT_EQ(plan.kv_slots, 1);
}

TEST(PackOrder, HeadsWaitForNoOtherHeadWhereSlotsSuffice) {
  const ForwardPlan plan = MakeForwardPlan(PackedProblem({{1024, 1024}}, 5), MakeMachine(4));
  EXPECT_EQ(plan.kv_slots, 5);
  // Besides tiles and packs, the plan has one join per head.
  EXPECT_EQ(plan.graph.task_count - std::ssize(plan.items) - std::ssize(plan.packs), 5);
}

// The loads are balanced, and workers hardly wait for slots that other workers fill. So the efficiency that the plan
// predicts is near 1.
TEST(PackOrder, WorkersOfManyHeadsHardlyWait) {
  const auto check = [&](int workers, int64_t heads, bool causal) {
    const ForwardPlan plan =
        MakeForwardPlan(PackedProblem({{4096, 4096}}, heads, causal ? Mask::Causal() : Mask::None()),
                        MakeMachine(workers, workers == 64 ? 2 : 1));
    EXPECT_GT(plan.efficiency, 0.9) << workers << " workers, " << heads << " heads, causal " << causal;
  };
  ForEachCase(check, Axis{"workers", {2, 4, 16, 64}}, Axis{"heads", {3, 16, 40, 200}}, Axis{"causal", {false, true}});
}

// Each long sequence fills whole ranges of workers. The range before it begins with short sequences. The packed panels
// of the long sequence must not wait for the short ones.
TEST(PackOrder, ALongSequenceBehindShortOnesDoesNotWaitForThem) {
  std::vector<std::pair<int64_t, int64_t>> lengths(72, {512, 512});
  lengths[23] = lengths[46] = {4096, 4096};
  EXPECT_GT(MakeForwardPlan(PackedProblem(lengths, 1), MakeMachine(16)).efficiency, 0.95);
}

}  // namespace
}  // namespace fa::tiling
