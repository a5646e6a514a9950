#include "tiling/forward/key_cut.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "support/each_case.h"
#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::tiling {
namespace {

using test::Axis;
using test::ForEachCase;

TEST(KeyCut, OnlyFewRowsAgainstManyKeysAreCut) {
  EXPECT_EQ(KeysOfAPart(1, 512), 512);
  EXPECT_EQ(KeysOfAPart(1, 513), 512);
  EXPECT_EQ(KeysOfAPart(16, 100000), 3328);
  EXPECT_EQ(KeysOfAPart(17, 100000), 100000);
  EXPECT_EQ(KeysOfAPart(1, 0), 1);
}

TEST(KeyCut, NoSequenceHasMoreThan32Parts) {
  for (int64_t sk = 1; sk < (int64_t{1} << 33); sk += sk / 3 + 1) {
    const int64_t part = KeysOfAPart(4, sk);
    ASSERT_LE((sk + part - 1) / part, 32) << sk;
    ASSERT_TRUE(part == sk || part % 256 == 0) << sk;
  }
}

TEST(KeyCut, PartsOfATileCoverItsKeysOnceInOrderAndShareAMerge) {
  const auto check = [&](int64_t sq, int workers) {
    const Sizes sizes{.lengths = {{sq, 5000}, {40, 5000}, {sq, 100}, {sq, 700}}, .heads = 6, .heads_kv = 3};
    const ForwardPlan plan = MakeForwardPlan(MakeProblem(sizes), MakeMachine(workers));
    int64_t merges = 0, states = 0;
    for (size_t i = 0; i < plan.items.size();) {
      const ForwardItem& first = plan.items[i];
      const auto [rows, keys] = sizes.lengths[static_cast<size_t>(first.sequence)];
      const int64_t part = KeysOfAPart(rows, keys);
      ASSERT_EQ(first.part, 0);
      if (first.parts == 1) {
        ASSERT_EQ(first.merge, -1);
        ++i;
        continue;
      }
      ASSERT_EQ(first.merge, merges++);
      ASSERT_EQ(first.first_state, states);
      states += first.parts;
      int64_t key = first.keys.begin;
      for (int32_t p = 0; p < first.parts; ++p, ++i) {
        const ForwardItem& item = plan.items[i];
        ASSERT_EQ(std::tie(item.part, item.parts, item.merge, item.first_state),
                  std::tie(p, first.parts, first.merge, first.first_state));
        ASSERT_EQ(std::tie(item.sequence, item.head_kv, item.head_begin, item.row_begin, item.row_end),
                  std::tie(first.sequence, first.head_kv, first.head_begin, first.row_begin, first.row_end));
        ASSERT_EQ(item.keys.begin, key);
        ASSERT_EQ(item.keys.begin / part, (item.keys.end - 1) / part);
        key = item.keys.end;
      }
      ASSERT_EQ(key, keys);
    }
    EXPECT_EQ(plan.merges, merges);
    EXPECT_EQ(plan.states, states);
    EXPECT_GT(merges, 0);
  };
  ForEachCase(check, Axis{"sq", {1, 3, 16}}, Axis{"workers", {1, 2, 64}});
}

}  // namespace
}  // namespace fa::tiling
