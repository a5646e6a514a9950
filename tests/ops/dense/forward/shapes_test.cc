// Tests every head size and every tail, on every instruction-set level.
#include <gtest/gtest.h>

#include <tuple>

#include "support/compare/compare.h"

namespace fa::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(ForwardShapes, HeadSizes) {
  for (const int64_t d : {1, 2, 3, 7, 8, 16, 40, 63, 64, 80, 96, 112, 128, 130, 192, 256, 512, 1024}) {
    for (const DType dtype : kDTypes) {
      ForwardCase c;
      c.dtype = dtype;
      c.d = c.dv = d;
      c.lengths = EqualLengths(1, 37, 67);
      c.mask.mode = d % 2 == 0 ? 3 : 1;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(ForwardShapes, ValueSizesApartFromHeadSizes) {
  for (const auto& [d, dv] :
       {std::pair{1, 17}, {17, 1}, {64, 128}, {128, 64}, {192, 128}, {40, 130}, {3, 1024}, {576, 512}}) {
    for (const DType dtype : kDTypes) {
      ForwardCase c;
      c.dtype = dtype;
      c.d = d;
      c.dv = dv;
      c.lengths = EqualLengths(1, 19, 41);
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

std::vector<int64_t> Tails(int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t length = 1; length <= 70; ++length) lengths.push_back(length);
  for (const int64_t length : {127, 128, 129, 130, 255, 256, 257, 258, 511, 512, 513, 514, 1000}) {
    if (length <= longest) lengths.push_back(length);
  }
  return lengths;
}

TEST(ForwardShapes, QueryTails) {
  for (const int64_t sq : Tails(1000)) {
    ForwardCase c;
    c.dtype = kDTypes[sq % 3];
    c.d = c.dv = 16;
    c.lengths = EqualLengths(1, sq, 45);
    EXPECT_TRUE(RunsLikeTheReference(c));
    c.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(ForwardShapes, KeyTails) {
  for (const int64_t sk : Tails(1000)) {
    ForwardCase c;
    c.dtype = kDTypes[sk % 3];
    c.d = c.dv = 16;
    c.lengths = EqualLengths(1, 35, sk);
    EXPECT_TRUE(RunsLikeTheReference(c));
    c.mask.mode = 2;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(ForwardShapes, SquareTailsCausal) {
  for (const int64_t s : Tails(514)) {
    ForwardCase c;
    c.dtype = kDTypes[s % 3];
    c.d = c.dv = 24;
    c.lengths = EqualLengths(1, s, s);
    c.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(ForwardShapes, ManyBatchElementsAndHeads) {
  ForwardCase c;
  c.heads = 12;
  c.heads_kv = 3;
  c.d = c.dv = 8;
  c.lengths = EqualLengths(17, 5, 9);
  EXPECT_TRUE(RunsLikeTheReference(c));
}

TEST(ForwardShapes, EmptyTensors) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    for (const auto& [batch, sq, sk] : {std::tuple{2, 0, 5}, {2, 5, 0}, {2, 0, 0}, {0, 3, 4}}) {
      if (layout == Layout::kTND && batch == 0) continue;  // an empty list of lengths is refused
      for (const bool sink : {false, true}) {
        ForwardCase c;
        c.layout = layout;
        c.lengths = EqualLengths(batch, sq, sk);
        c.sink = sink;
        EXPECT_TRUE(RunsLikeTheReference(c));
      }
    }
  }
}

TEST(ForwardShapes, PackedSequencesOfEveryLengthZeroIncluded) {
  ForwardCase c;
  c.layout = Layout::kTND;
  c.heads = 2;
  c.d = c.dv = 12;
  for (int64_t b = 0; b < 40; ++b) {
    c.lengths.sq.push_back(b * 7 % 23);
    c.lengths.sk.push_back(b * 11 % 37);
  }
  c.lengths.sq.insert(c.lengths.sq.end(), {0, 200, 1, 0});
  c.lengths.sk.insert(c.lengths.sk.end(), {0, 300, 500, 9});
  c.lengths.sq.erase(c.lengths.sq.begin());
  c.lengths.sk.erase(c.lengths.sk.begin());
  c.tail_q = 4;
  for (const int mode : {1, 2, 3}) {
    c.mask.mode = mode;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

}  // namespace
}  // namespace fa::test
