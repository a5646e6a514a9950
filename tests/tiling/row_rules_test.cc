#include "tiling/row_rules.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fa::tiling
