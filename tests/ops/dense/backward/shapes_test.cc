// Tests every head size and every tail, on every instruction-set level.
#include <gtest/gtest.h>

#include <tuple>

#include "support/compare/compare_gradients.h"

namespace fa::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(BackwardShapes, HeadSizes) {
  for (const int64_t d : {1, 2, 3, 7, 8, 16, 40, 63, 64, 80, 96, 112, 128, 130, 192, 256, 512, 1024}) {
    for (const DType dtype : kDTypes) {
      BackwardCase c;
      c.forward.dtype = dtype;
      c.forward.d = c.forward.dv = d;
      c.forward.lengths = EqualLengths(1, 37, 67);
      c.forward.mask.mode = d % 2 == 0 ? 3 : 1;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(BackwardShapes, ValueSizesApartFromHeadSizes) {
  for (const auto& [d, dv] :
       {std::pair{1, 17}, {17, 1}, {64, 128}, {128, 64}, {192, 128}, {40, 130}, {3, 1024}, {576, 512}}) {
    for (const DType dtype : kDTypes) {
      BackwardCase c;
      c.forward.dtype = dtype;
      c.forward.d = d;
      c.forward.dv = dv;
      c.forward.lengths = EqualLengths(1, 19, 41);
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(BackwardShapes, RopeSizes) {
  for (const int64_t d_rope : {1, 3, 8, 33, 64}) {
    for (const DType dtype : kDTypes) {
      BackwardCase c;
      c.forward.dtype = dtype;
      c.forward.heads = 2;
      c.forward.d = 20;
      c.forward.d_rope = d_rope;
      c.forward.lengths = EqualLengths(1, 41, 19);
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

std::vector<int64_t> Tails() {
  std::vector<int64_t> lengths;
  for (int64_t length = 1; length <= 70; ++length) lengths.push_back(length);
  for (const int64_t length : {127, 128, 129, 130, 255, 256, 257, 258, 300, 511, 512, 513}) lengths.push_back(length);
  return lengths;
}

TEST(BackwardShapes, QueryTails) {
  for (const int64_t sq : Tails()) {
    BackwardCase c;
    c.forward.dtype = kDTypes[sq % 3];
    c.forward.lengths = EqualLengths(1, sq, 45);
    c.forward.mask.mode = sq % 2 == 0 ? 3 : 1;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(BackwardShapes, KeyTails) {
  for (const int64_t sk : Tails()) {
    BackwardCase c;
    c.forward.dtype = kDTypes[sk % 3];
    c.forward.lengths = EqualLengths(1, 35, sk);
    c.forward.mask.mode = sk % 2 == 0 ? 2 : 1;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(BackwardShapes, SquareTailsCausal) {
  for (const int64_t s : Tails()) {
    BackwardCase c;
    c.forward.dtype = kDTypes[s % 3];
    c.forward.d = c.forward.dv = 12;
    c.forward.lengths = EqualLengths(1, s, s);
    c.forward.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(BackwardShapes, GroupsOfEverySize) {
  for (const int64_t group : {1, 2, 3, 5, 8, 16}) {
    for (const int64_t sq : {1, 9, 140}) {
      BackwardCase c;
      c.forward.dtype = kDTypes[group % 3];
      c.forward.heads = 2 * group;
      c.forward.heads_kv = 2;
      c.forward.lengths = EqualLengths(1, sq, 50);
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(BackwardShapes, ManyBatchElementsAndHeads) {
  BackwardCase c;
  c.forward.heads = 12;
  c.forward.heads_kv = 3;
  c.forward.d = c.forward.dv = 8;
  c.forward.lengths = EqualLengths(17, 5, 9);
  EXPECT_TRUE(RunsLikeTheReference(c));
}

TEST(BackwardShapes, EmptyTensors) {
  for (const Layout layout : {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND}) {
    for (const auto& [batch, sq, sk] : {std::tuple{2, 0, 5}, {2, 5, 0}, {2, 0, 0}, {0, 3, 4}}) {
      if (layout == Layout::kTND && batch == 0) continue;  // an empty list of lengths is refused
      for (const PseForm pse : {PseForm::kNone, PseForm::kFull, PseForm::kRow, PseForm::kSlopes}) {
        BackwardCase c;
        c.forward.layout = layout;
        c.forward.lengths = EqualLengths(batch, sq, sk);
        c.forward.pse = pse;
        if (pse != PseForm::kNone) c.forward.pse_type = reference::PseType::kScaleThenAdd;
        if (pse == PseForm::kSlopes) c.forward.pse_type = reference::PseType::kSlopes;
        c.forward.sink = true;
        EXPECT_TRUE(RunsLikeTheReference(c));
      }
    }
  }
}

// A gradient that is summed over the batch is written even if the batch is empty.
TEST(BackwardShapes, BroadcastParametersOfAnEmptyBatchHaveNoGradient) {
  const auto sized = [](auto* view, int64_t rows) {
    view->shape[2] = rows;
    view->stride = {};
  };
  for (const PseForm pse : {PseForm::kFull, PseForm::kRow, PseForm::kSlopes}) {
    BackwardCase c;
    c.forward.lengths = EqualLengths(0, 3, 4);
    c.forward.sink = true;
    const BackwardProblem problem(c);
    AttentionGradArgs args = problem.args();
    for (TensorView* view : {&args.q, &args.out, &args.d_out, &args.softmax_max, &args.softmax_sum}) sized(view, 3);
    for (TensorView* view : {&args.k, &args.v}) sized(view, 4);
    sized(&args.dq, 3);
    for (MutableTensorView* view : {&args.dk, &args.dv}) sized(view, 4);
    AttentionOptions options = problem.options();
    const Dims shape = pse == PseForm::kSlopes ? Dims{1} : Dims{1, 1, pse == PseForm::kRow ? 1 : 3, 4};
    const std::vector<float> bias(12);
    std::vector<float> gradient(12, 5);
    args.pse = {bias.data(), DType::kF32, shape, {}};
    (pse == PseForm::kSlopes ? args.dslopes : args.dpse) = {gradient.data(), DType::kF32, shape, {}};
    if (pse == PseForm::kSlopes) options.pse_type = PseType::kSlopes;
    const Status status = FlashAttentionGrad(args, options);
    ASSERT_TRUE(status.ok()) << status.message();
    const size_t written = pse == PseForm::kSlopes ? 1 : pse == PseForm::kRow ? 4 : 12;
    for (size_t x = 0; x < gradient.size(); ++x) EXPECT_EQ(gradient[x], x < written ? 0 : 5) << x;
    EXPECT_EQ(problem.Outputs().gradients.dsink.at(0), 0);
    const std::vector<float> sinks(3);
    std::vector<float> of_rows(4, 5);
    args.sink = {sinks.data(), DType::kF32, {1, 1, 3}, {}};
    args.dsink = {of_rows.data(), DType::kF32, {1, 1, 3}, {}};
    const Status of_row_sinks = FlashAttentionGrad(args, options);
    ASSERT_TRUE(of_row_sinks.ok()) << of_row_sinks.message();
    EXPECT_EQ(of_rows, (std::vector<float>{0, 0, 0, 5}));
  }
}

TEST(BackwardShapes, PackedSequencesOfEveryLengthZeroIncluded) {
  BackwardCase c;
  c.forward.layout = Layout::kTND;
  c.forward.heads = 2;
  c.forward.d = c.forward.dv = 12;
  auto& [sq, sk] = c.forward.lengths;
  sq.clear();
  sk.clear();
  for (int64_t b = 0; b < 40; ++b) {
    sq.push_back(b * 7 % 23);
    sk.push_back(b * 11 % 37);
  }
  sq.insert(sq.end(), {0, 200, 1, 0});
  sk.insert(sk.end(), {0, 300, 500, 9});
  c.forward.tail_q = 4;
  c.forward.tail_kv = 70;
  for (const int mode : {1, 2, 3}) {
    c.forward.mask.mode = mode;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

}  // namespace
}  // namespace fa::test
