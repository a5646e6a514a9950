// Tests few query rows against many keys. The keys are cut into parts, whose results are added up. Kernels for few rows
// compute the rows.
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <string>
#include <utility>

#include "support/compare/compare.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Without this setting oneTBB would give no more workers than the machine has cores.
const tbb::global_control kEightThreads(tbb::global_control::max_allowed_parallelism, 8);

ForwardCase Decode(int64_t sq, int64_t sk, int64_t heads, int64_t heads_kv, DType dtype = DType::kF32) {
  ForwardCase c;
  c.dtype = dtype;
  c.heads = heads;
  c.heads_kv = heads_kv;
  c.d = c.dv = 24;
  c.lengths = EqualLengths(2, sq, sk);
  return c;
}

TEST(ForwardDecode, EveryNumberOfRowsAndHeadsOfAGroup) {
  int n = 0;
  for (const int64_t group : {1, 3, 4, 8, 20}) {
    for (const int64_t sq : {1, 2, 5, 8, 16, 17}) {
      const ForwardCase c = Decode(sq, 1100 + n, group, 1, kDTypes[n % 3]);
      ++n;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(ForwardDecode, EveryHeadSize) {
  for (const int64_t d : {1, 5, 16, 31, 64, 72, 128, 192, 576}) {
    for (const DType dtype : kDTypes) {
      ForwardCase c = Decode(1, 600, 4, 2, dtype);
      c.d = d;
      c.dv = d == 576 ? 512 : d + d % 3;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(ForwardDecode, PartsOfEveryLength) {
  for (const int64_t sk : {511, 512, 513, 1024, 1025, 5000, 20000}) {
    ForwardCase c = Decode(2, sk, 2, 1, kDTypes[sk % 3]);
    c.d = c.dv = 8;
    EXPECT_TRUE(RunsLikeTheReference(c));
  }
}

TEST(ForwardDecode, MasksThatLeaveSomePartsOut) {
  for (const int64_t sq : {1, 4, 16}) {
    for (const int mode : {1, 2, 3}) {
      ForwardCase c = Decode(sq, 3000, 4, 2);
      c.mask.mode = mode;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
    for (const int64_t pre : {0, 3, 700, 1500}) {
      ForwardCase c = Decode(sq, 3000, 4, 2);
      c.mask.mode = 4;
      c.mask.pre = pre;
      c.mask.next = 0;
      EXPECT_TRUE(RunsLikeTheReference(c));
      c.mask.next = -1200;  // no row sees a key of the last parts
      c.mask.pre = 1300 + pre;
      EXPECT_TRUE(RunsLikeTheReference(c));
    }
  }
}

TEST(ForwardDecode, Features) {
  for (const int64_t sq : {1, 7}) {
    const ForwardCase usual = Decode(sq, 1500, 6, 3, kDTypes[sq % 3]);
    const auto check = [&](const auto& change) {
      ForwardCase c = usual;
      change(&c);
      EXPECT_TRUE(RunsLikeTheReference(c));
    };
    check([](ForwardCase* c) { c->dense_mask = MaskForm::kPerHead; });
    check([](ForwardCase* c) {
      c->pse = PseForm::kFull;
      c->pse_type = reference::PseType::kScaleThenAdd;
    });
    check([](ForwardCase* c) {
      c->pse = PseForm::kSlopes;
      c->pse_type = reference::PseType::kSlopes;
    });
    check([](ForwardCase* c) {
      c->dropout = DropoutForm::kMask;
      c->keep_prob = 0.7f;
    });
    check([](ForwardCase* c) {
      c->dropout = DropoutForm::kSeed;
      c->keep_prob = 0.7f;
    });
    check([](ForwardCase* c) { c->sink = true; });
    check([](ForwardCase* c) { c->softcap = 3; });
    check([](ForwardCase* c) { c->d_rope = 24; });
  }
}

class ForwardDecodeBits : public ::testing::TestWithParam<Isa> {};

TEST_P(ForwardDecodeBits, DependOnTheSequenceAlone) {
  for (const DType dtype : kDTypes) {
    for (const auto& [sq, heads] : {std::pair<int64_t, int64_t>{1, 4}, {3, 2}, {16, 4}}) {
      const ForwardCase c = Decode(sq, 2600, heads, 1, dtype);
      const ForwardOutputs one = OutputsOf(c, ContextOf(GetParam(), 1));
      for (const int threads : {2, 3, 8}) {
        EXPECT_TRUE(SameBits(one, OutputsOf(c, ContextOf(GetParam(), threads)))) << threads << " threads" << c;
      }
      for (const Layout layout : {Layout::kBSND, Layout::kSBH, Layout::kTND}) {
        ForwardCase other = c;
        other.layout = layout;
        EXPECT_TRUE(SameBits(one, OutputsOf(other, ContextOf(GetParam(), 2)))) << other;
      }
      ForwardCase first = c;
      first.lengths = EqualLengths(1, sq, 2600);
      const ForwardOutputs alone = OutputsOf(first, ContextOf(GetParam(), 2));
      for (size_t i = 0; i < alone.out.size(); ++i) ASSERT_EQ(alone.out[i], one.out[i]) << i << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardDecodeBits, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
