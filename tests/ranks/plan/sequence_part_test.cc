#include "ranks/plan/sequence_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/tiling/sample_problems.h"

namespace fa::tiling {
namespace {

using testing::ElementsAre;

std::vector<Mask> AllKinds() {
  return {Mask::None(),
          Mask::Causal(),
          Mask::CausalTopLeft(),
          Mask::Band(3, 1),
          Mask::BandTopLeft(2, 4),
          Mask::Band(-1, 4),
          Mask::Prefix({3}),
          Mask::FromSparseMode(7, Mask::kUnlimited, -2, {}, false).value(),
          Mask::FromSparseMode(8, Mask::kUnlimited, 2, {}, false).value()};
}

void ExpectRowsOfTheWhole(const Sequence& whole) {
  const KeptKeys kept{whole.rule.KeysOfRows({0, whole.sq}), whole.rule.KeysOfEveryRow({0, whole.sq})};
  for (int64_t begin = 0; begin <= whole.sq; ++begin) {
    for (int64_t end = begin; end <= whole.sq; ++end) {
      const Sequence part = PartOf(whole, {begin, end});
      ASSERT_EQ(part.sq, end - begin);
      ASSERT_EQ(part.rule.sq, whole.sq);
      ASSERT_EQ(part.kept_by_all, kept);
      for (int64_t row = begin; row < end; ++row) ASSERT_EQ(part.rule.Keys(row - begin), whole.rule.Keys(row));
      ASSERT_EQ(part.rule.KeptPairs({0, part.sq}), whole.rule.KeptPairs({begin, end}));
      ASSERT_EQ(part.rule.KeysOfRows({0, part.sq}), whole.rule.KeysOfRows({begin, end}));
    }
  }
}

TEST(SequencePart, RowsKeepTheirKeysForAllSmallShapesAndMasks) {
  for (int64_t sq = 1; sq <= 8; ++sq) {
    for (int64_t sk = 0; sk <= 8; ++sk) {
      for (const Mask& mask : AllKinds()) {
        Sequence whole{.sq = sq, .sk = sk, .rule = {}};
        whole.rule = MakeRowRule(mask, 0, sq, sk, true, true);
        ExpectRowsOfTheWhole(whole);
      }
    }
  }
}

TEST(SequencePart, ListedRowsKeepTheirKeys) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    Sequence whole{.sq = 7, .sk = 9, .rule = {}};
    whole.rule = RandomListedRule(random, whole.sq, whole.sk);
    ExpectRowsOfTheWhole(whole);
  }
}

TEST(SequencePart, APartOfAPartKnowsTheWhole) {
  Sequence whole{.sq = 8, .sk = 8, .rule = {}};
  whole.rule = MakeRowRule(Mask::Causal(), 0, 8, 8, true, true);
  const Sequence part = PartOf(PartOf(whole, {2, 8}), {3, 5});
  EXPECT_EQ(part.rule.sq, 8);
  EXPECT_EQ(part.rule.Keys(0), (Interval{0, 6}));
  EXPECT_EQ(part.kept_by_all, (KeptKeys{{0, 8}, {0, 1}}));
}

TEST(SequencePart, ACutMayRunThroughPackedSequences) {
  std::vector<Sequence> sequences(3);
  sequences[0] = {.sq = 5, .sk = 4, .q_offset = 0, .k_offset = 0, .rule = {}};
  sequences[1] = {.sq = 0, .sk = 3, .q_offset = 5, .k_offset = 4, .rule = {}};
  sequences[2] = {.sq = 6, .sk = 6, .q_offset = 5, .k_offset = 7, .rule = {}};
  for (Sequence& sequence : sequences) {
    sequence.rule = MakeRowRule(Mask::Causal(), 0, sequence.sq, sequence.sk, true, true);
  }
  // The parts are rows 8..10, and then rows 3..6, of the packed sequences.
  const std::vector<PlacedRows> placed{{{8, 11}, 0}, {{3, 7}, 3}};
  const std::vector<RowPart> parts = PartsOf(sequences, {0, 3}, placed);
  EXPECT_THAT(parts, ElementsAre(RowPart{0, {{3, 5}, 3}}, RowPart{2, {{0, 2}, 5}}, RowPart{2, {{3, 6}, 0}}));
  EXPECT_THAT(KeysSeen(sequences, parts), ElementsAre(Interval{0, 4}, Interval{7, 13}));
}

}  // namespace
}  // namespace fa::tiling
