#include "tiling/row_rules.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fa::tiling {
namespace {

std::vector<Sequence> Sequences() {
  std::vector<Sequence> sequences(5);
  for (Sequence& sequence : sequences) sequence.sk = 6;
  for (const size_t b : {1, 2, 3}) sequences[b].sq = 4;
  return sequences;
}

std::vector<int64_t> FirstRowEnds(const Mask& mask) {
  std::vector<Sequence> sequences = Sequences();
  SetRowRules(mask, sequences);
  std::vector<int64_t> ends;
  for (const size_t b : {1, 2, 3}) ends.push_back(sequences[b].rule.Keys(0).end);
  return ends;
}

TEST(RowRules, ModesOfBandsTreatTheFirstOrTheLastSequenceWithRowsApart) {
  const auto mode = [](int64_t sparse_mode) { return *Mask::FromSparseMode(sparse_mode, 100, -1, {}, false); };
  EXPECT_EQ(FirstRowEnds(Mask::Causal()), (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(FirstRowEnds(mode(7)), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(FirstRowEnds(mode(8)), (std::vector<int64_t>{2, 1, 1}));
}

std::string TextOf(const Mask& mask, int64_t sq, int64_t sk) {
  std::vector<Sequence> sequences(2);
  for (Sequence& sequence : sequences) {
    sequence.sq = sq;
    sequence.sk = sk;
  }
  SetRowRules(mask, sequences);
  return MaskText(sequences);
}

TEST(MaskText, SaysTheRule) {
  EXPECT_EQ(TextOf(Mask::None(), 4, 6), "no rule");
  EXPECT_EQ(TextOf(Mask::Causal(), 4, 6), "causal");
  EXPECT_EQ(TextOf(Mask::Causal(), 1, 6), "no rule");  // the row sees every key, so no rule is needed
  EXPECT_EQ(TextOf(Mask::CausalTopLeft(), 4, 6), "causal from the first row");
  EXPECT_EQ(TextOf(Mask::CausalTopLeft(), 6, 6), "causal");
  EXPECT_EQ(TextOf(Mask::Band(2, 1), 6, 6), "row i: keys i-2 to i+1");
  EXPECT_EQ(TextOf(Mask::Band(2, 0), 4, 6), "row i: keys i+0 to i+2");  // row i's diagonal is at key i+2
  EXPECT_EQ(TextOf(Mask::Band(100, 1), 6, 6), "row i: keys to i+1");
  EXPECT_EQ(TextOf(Mask::Band(1, 100), 6, 6), "row i: keys from i-1");
  EXPECT_EQ(TextOf(Mask::Causal(), 0, 6), "no rule");
}

TEST(MaskText, SaysThatSequencesDiffer) {
  std::vector<Sequence> sequences = Sequences();
  SetRowRules(Mask::Causal(), sequences);
  EXPECT_EQ(MaskText(sequences), "causal");
  sequences[2].rule.hi = 0;
  EXPECT_EQ(MaskText(sequences), "rules that differ");
  sequences[2].sq = 0;  // a sequence without rows is left out of the text
  EXPECT_EQ(MaskText(sequences), "causal");
  for (Sequence& sequence : sequences) sequence.rule.listed = std::make_shared<std::vector<Interval>>(4);
  EXPECT_EQ(MaskText(sequences), "listed rows");
}

}  // namespace
}  // namespace fa::tiling
