// Compares the scores and products of bf16 pairs with computations in double. Operands are bf16, so every product of
// two operands is exact in f32, and only the sums round.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/kernels/pair_fixture.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {
namespace {

class PairKernelsTest : public OnPairs {};

INSTANTIATE_TEST_SUITE_P(Registry, PairKernelsTest, testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Emulated, PairKernelsTest, testing::Values(3));
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, PairKernelsTest, testing::Values(6, 7));

TEST_P(PairKernelsTest, ScoresEqualDoubleForEveryTail) {
  const auto check = [&](int64_t d, int64_t keys, bool accumulate) {
    const int64_t count = width() - 1;
    const Bf16Matrix q(count, d, d + 3, 1), k(keys, d, d + 1, 2);
    const std::vector<float> panel = Panel(q, count, d, -1);
    Matrix s(keys, width(), width(), 3), row_max = RowOf(width(), kMaskedScore);
    const Matrix before = s;
    kernels().scores(k.block(), keys, panel.data(), d, accumulate, s.data(), row_max.data());
    ExpectSums(
        s, width(), d, d + 1, [&](int64_t key, int64_t lane) { return accumulate ? before.at(key, lane) : 0.0; },
        [&](int64_t key, int64_t lane, int64_t c) { return lane < count ? -double{q.at(lane, c)} * k.at(key, c) : 0; });
    ExpectRaised(row_max, kMaskedScore, s, keys, width());
  };
  ForEachCase(check, Axis{"d", {1, 2, 3, 16, 31, 32, 33, 40, 64, 97}},
              Axis{"keys", {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 35}}, Axis{"accumulate", {false, true}});
}

TEST_P(PairKernelsTest, ProductEqualsDoubleForEveryTail) {
  const auto check = [&](int64_t keys, int64_t dv, bool scaled) {
    const Bf16Matrix v(keys + 1, dv, dv + 2, 4);
    std::vector<float> pairs(static_cast<size_t>(rows().PairedFloats(keys + 1, dv)), kNan);
    rows().pair_rows(v.block(), keys + 1, dv, pairs.data(), dv);
    const Bf16Matrix p(keys, width(), width(), 5);
    Matrix tile(keys, width(), width(), 6);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) tile.at(key, lane) = p.at(key, lane);
    }
    const Matrix unpaired = tile;
    Matrix o(dv, width(), width(), 7), alpha = scaled ? Matrix(1, width(), width(), 8) : RowOf(width(), 1);
    const Matrix before = o;
    Matrix exact = o;
    const RowBlock block = rows().Paired(pairs.data(), dv);
    kernels().product_exact(block, keys, tile.data(), dv, alpha.data(), exact.data());
    kernels().pairs.pair_keys(tile.data(), keys, tile.data());
    kernels().product(block, keys, tile.data(), dv, alpha.data(), o.data());
    for (const Matrix* got : {&o, &exact}) {
      ExpectSums(
          *got, width(), keys, keys + 2,
          [&](int64_t c, int64_t lane) { return double{alpha.at(0, lane)} * before.at(c, lane); },
          [&](int64_t c, int64_t lane, int64_t key) { return double{v.at(key, c)} * p.at(key, lane); });
    }
    kernels().pairs.unpair_keys(tile.data(), keys);
    ASSERT_TRUE(SameBits(tile, unpaired));
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 8, 17, 40, 64}}, Axis{"dv", {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 40, 96}},
              Axis{"scaled", {false, true}});
}

class ListedPairsTest : public PairKernelsTest {
 protected:
  void SetUp() override {
    PairKernelsTest::SetUp();
    if (IsSkipped()) return;
    // The test itself states which tables must have scores by address. So it fails if one of these tables no longer has
    // them.
    const bool of_this_cpu = GetParam() < kStrips;
    if (of_this_cpu && table().isa != Isa::kAvx512Bf16) GTEST_SKIP() << "this CPU's products take no rows by address";
    ASSERT_TRUE(kernels().scores_by_address);
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, ListedPairsTest, testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Emulated, ListedPairsTest, testing::Values(3));

TEST_P(ListedPairsTest, HaveTheBitsOfRowsThatLieEvenlyApart) {
  const auto check = [&](int64_t d, int64_t keys) {
    const Bf16Matrix q(width(), d, d, 1), k(keys, d, d + 5, 2);
    const std::vector<float> panel = Panel(q, width(), d, 1);
    std::vector<const void*> addresses;
    for (int64_t key = 0; key < keys; ++key) addresses.push_back(k.row(key));
    const RowBlock listed{.dtype = DType::kBF16, .rows = addresses.data()};
    for (const bool accumulate : {false, true}) {
      Matrix want(keys, width(), width(), 3), want_max = RowOf(width(), -1.0f);
      Matrix have = want, have_max = want_max;
      kernels().scores(k.block(), keys, panel.data(), d, accumulate, want.data(), want_max.data());
      FetchList::Run run{reinterpret_cast<const char*>(panel.data()),
                         reinterpret_cast<const char*>(panel.data() + panel.size())};
      FetchList list{.run = &run, .end = &run + 1};
      RowBlock fetching = listed;
      fetching.fetch = &list;
      fetching.fetch_lines = 9;
      kernels().scores(fetching, keys, panel.data(), d, accumulate, have.data(), have_max.data());
      ASSERT_TRUE(SameBits(have, want)) << accumulate;
      ASSERT_TRUE(SameBits(have_max, want_max)) << accumulate;
    }
    std::vector<float> want_pairs(static_cast<size_t>(CeilDiv(keys, 2) * d), kNan), have_pairs = want_pairs;
    rows().pair_rows(k.block(), keys, d, want_pairs.data(), d);
    rows().pair_rows(listed, keys, d, have_pairs.data(), d);
    ASSERT_EQ(std::memcmp(have_pairs.data(), want_pairs.data(), want_pairs.size() * sizeof(float)), 0);
  };
  ForEachCase(check, Axis{"d", {1, 2, 15, 32, 33, 64, 97}}, Axis{"keys", {1, 2, 7, 8, 9, 16, 35}});
}

TEST_P(PairKernelsTest, RowBesideAnOddLastKeyIsNotMultiplied) {
  constexpr int64_t kKeys = 5, kDv = 3;
  Bf16Matrix v(kKeys + 1, kDv, kDv, 9);
  v.Set(kKeys, 1, kNan);
  std::vector<float> pairs(static_cast<size_t>(rows().PairedFloats(kKeys + 1, kDv)));
  rows().pair_rows(v.block(), kKeys + 1, kDv, pairs.data(), kDv);
  Matrix p(kKeys, width(), width(), 10), o(kDv, width(), width(), 11);
  kernels().pairs.pair_keys(p.data(), kKeys, p.data());
  kernels().product(rows().Paired(pairs.data(), kDv), kKeys, p.data(), kDv, nullptr, o.data());
  for (int64_t lane = 0; lane < width(); ++lane) EXPECT_TRUE(std::isfinite(o.at(1, lane))) << lane;
}

TEST_P(PairKernelsTest, ExactProductNeverMultipliesAMaskedPair) {
  constexpr int64_t kKeys = 4, kDv = 2;
  Bf16Matrix v(kKeys, kDv, kDv, 12);
  v.Set(2, 0, kNan);
  v.Set(3, 1, kInf);
  std::vector<float> pairs(static_cast<size_t>(rows().PairedFloats(kKeys, kDv)));
  rows().pair_rows(v.block(), kKeys, kDv, pairs.data(), kDv);
  Matrix p(kKeys, width(), width(), 13), o(kDv, width(), width(), 14);
  for (int64_t lane = 0; lane < width(); lane += 2) p.at(2, lane) = p.at(3, lane) = kMaskedProbability;
  kernels().product_exact(rows().Paired(pairs.data(), kDv), kKeys, p.data(), kDv, nullptr, o.data());
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t c = 0; c < kDv; ++c) EXPECT_EQ(std::isfinite(o.at(c, lane)), lane % 2 == 0) << c << " " << lane;
  }
}

TEST_P(PairKernelsTest, AProductMayBeginInsideAGroupWhoseOtherRowsAreNan) {
  constexpr int64_t kRows = 71, kDv = 19;
  const int64_t group = rows().pair_group;
  std::vector<int64_t> begins;
  for (int64_t begin = 0; begin <= 2 * group && begin < 36; begin += 2) begins.push_back(begin);
  const auto check = [&](int64_t begin, int64_t keys) {
    const int64_t whole = begin / group * group, end = begin + keys;
    Bf16Matrix v(kRows, kDv, kDv, 31);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kDv && (r < begin || r >= end); ++c) v.Set(r, c, kNan);
    }
    // `words` ends with the group that has the last key. All rows that the product must not use are NaN.
    const int64_t laid = std::min(RoundUp(end, group), kRows);
    std::vector<float> words(static_cast<size_t>(rows().PairedFloats(laid, kDv)), kNan);
    rows().pair_rows(v.block(), laid, kDv, words.data(), kDv);
    RowBlock block = rows().Paired(words.data() + whole / 2 * kDv, kDv);
    block.skip = begin - whole;
    Matrix p(keys, width(), width(), 32), o(kDv, width(), width(), 33), alpha(1, width(), width(), 34);
    const Matrix before = o;
    Matrix exact = o;
    kernels().product_exact(block, keys, p.data(), kDv, alpha.data(), exact.data());
    kernels().pairs.pair_keys(p.data(), keys, p.data());
    kernels().product(block, keys, p.data(), kDv, alpha.data(), o.data());
    kernels().pairs.unpair_keys(p.data(), keys);
    ExpectSums(
        o, width(), keys, keys + 2,
        [&](int64_t c, int64_t lane) { return double{alpha.at(0, lane)} * before.at(c, lane); },
        [&](int64_t c, int64_t lane, int64_t key) { return double{v.at(begin + key, c)} * p.at(key, lane); });
    ASSERT_TRUE(SameBits(o, exact));
  };
  ForEachCase(check, Axis{"begin", begins}, Axis{"keys", test::FromTo(1, 9)});
}

TEST_P(PairKernelsTest, NothingIsReadPastTheLastRow) {
  const auto at_end = [](const void* from, size_t bytes) {
    auto buffer = std::make_unique<test::GuardedBuffer>(bytes, test::Place::kAtEnd);
    std::memcpy(buffer->data(), from, bytes);
    return buffer;
  };
  for (const int64_t columns : {1, 2, 3, 4, 5, 8, 9, 33}) {
    const Bf16Matrix q(width(), columns, columns, 44);
    const std::vector<float> panel = Panel(q, width(), columns, 1);
    const auto guarded_panel = at_end(panel.data(), panel.size() * sizeof panel[0]);
    for (const int64_t keys : {1, 2, 3, 4, 5, 7, 8, 9, 33}) {
      const Bf16Matrix k(keys, columns, columns, 45);
      const auto rows_of_k = at_end(k.row(0), static_cast<size_t>(keys * columns) * sizeof(uint16_t));
      Matrix s(keys, width(), width(), 46), o(columns, width(), width(), 47);
      kernels().scores({rows_of_k->data(), DType::kBF16, columns}, keys,
                       reinterpret_cast<const float*>(guarded_panel->data()), columns, false, s.data(), nullptr);
      std::vector<float> words(static_cast<size_t>(rows().PairedFloats(keys, columns)));
      rows().pair_rows({rows_of_k->data(), DType::kBF16, columns}, keys, columns, words.data(), columns);
      const auto guarded_words = at_end(words.data(), words.size() * sizeof words[0]);
      const RowBlock v = rows().Paired(reinterpret_cast<const float*>(guarded_words->data()), columns);
      kernels().product_exact(v, keys, s.data(), columns, nullptr, o.data());
      kernels().pairs.pair_keys(s.data(), keys, s.data());
      kernels().product(v, keys, s.data(), columns, nullptr, o.data());
      ASSERT_TRUE(s.Intact() && o.Intact()) << columns << " " << keys;
    }
  }
}

TEST_P(PairKernelsTest, PanelsOfWholeGroupsOfColumnsAreOnePanel) {
  constexpr int64_t kKeys = 19, kBehind = 37;
  const int64_t group = kernels().panel_group;
  for (const int64_t d : {group, 5 * group, 16 * group}) {
    const int64_t columns = d + kBehind;
    const Bf16Matrix q(width(), columns, columns, 35), k(kKeys, columns, columns + 1, 36);
    std::vector<const void*> lanes(static_cast<size_t>(width())), behind = lanes;
    for (int64_t i = 0; i < width(); ++i) {
      lanes[static_cast<size_t>(i)] = q.row(i);
      behind[static_cast<size_t>(i)] = q.row(i) + d;
    }
    std::vector<float> panel(static_cast<size_t>((kernels().PanelRows(d) + kernels().PanelRows(kBehind)) * width()));
    kernels().pack_queries({lanes.data(), DType::kBF16, width()}, d, 1, panel.data());
    kernels().pack_queries({behind.data(), DType::kBF16, width()}, kBehind, 1,
                           panel.data() + kernels().PanelRows(d) * width());
    Matrix s(kKeys, width(), width(), 37), want = s;
    kernels().scores(k.block(), kKeys, panel.data(), columns, false, s.data(), nullptr);
    kernels().scores(k.block(), kKeys, Panel(q, width(), columns, 1).data(), columns, false, want.data(), nullptr);
    ASSERT_TRUE(SameBits(s, want)) << d;
  }
}

TEST_P(PairKernelsTest, TheBitsOfALaneDoNotDependOnTheWidth) {
  constexpr int64_t kKeys = 37, kD = 45;
  const StripKernels& wide = table().widest();
  const Bf16Matrix q(wide.width, kD, kD, 38), k(kKeys, kD, kD + 1, 39), v(kKeys, kD, kD, 40);
  std::vector<float> words(static_cast<size_t>(rows().PairedFloats(kKeys, kD)));
  rows().pair_rows(v.block(), kKeys, kD, words.data(), kD);
  const auto compute = [&](const StripKernels& of) {
    std::vector<const void*> lanes;
    for (int64_t i = 0; i < of.width; ++i) lanes.push_back(q.row(i));
    std::vector<float> panel(static_cast<size_t>(of.PanelRows(kD) * of.width));
    of.pack_queries({lanes.data(), DType::kBF16, of.width}, kD, 1, panel.data());
    Matrix s(kKeys, of.width, of.width, 41), o(kD, of.width, of.width, 42);
    of.scores(k.block(), kKeys, panel.data(), kD, false, s.data(), nullptr);
    of.pairs.pair_keys(s.data(), kKeys, s.data());
    of.product(rows().Paired(words.data(), kD), kKeys, s.data(), kD, nullptr, o.data());
    return o;
  };
  const Matrix want = compute(wide), have = compute(kernels());
  for (int64_t c = 0; c < kD; ++c) {
    for (int64_t lane = 0; lane < width(); ++lane) {
      ASSERT_EQ(std::bit_cast<uint32_t>(have.at(c, lane)), std::bit_cast<uint32_t>(want.at(c, lane))) << c;
    }
  }
}

TEST_P(PairKernelsTest, RoundsToNearestEvenAndKeepsNan) {
  Matrix s(2, width(), width(), 15);
  s.at(0, 0) = 1.0f + 0x1p-8f;             // half way between two bf16 numbers; the even one is below
  s.at(0, 1) = 1.0f + 0x1p-7f + 0x1p-8f;   // half way between two bf16 numbers; the even one is above
  s.at(0, 2) = 1.0f + 0x1p-8f + 0x1p-20f;  // a little above half way, so it is rounded up
  s.at(0, 3) = kNan;
  s.at(1, 0) = -3.0f;
  s.at(1, 1) = -kInf;
  std::vector<float> rounded(static_cast<size_t>(width()), 0.0f);
  kernels().pairs.pair_lanes(s.data(), 2, rounded.data());
  std::vector<uint16_t> bits(static_cast<size_t>(2 * width()));
  std::memcpy(bits.data(), rounded.data(), bits.size() * sizeof bits[0]);
  EXPECT_EQ(FloatOf(bits[0]), 1.0f);
  EXPECT_EQ(FloatOf(bits[1]), 1.0f + 0x1p-6f);
  EXPECT_EQ(FloatOf(bits[2]), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isnan(FloatOf(bits[3])));
  EXPECT_EQ(FloatOf(bits[static_cast<size_t>(width())]), -3.0f);
  EXPECT_EQ(FloatOf(bits[static_cast<size_t>(width() + 1)]), -kInf);
}

}  // namespace
}  // namespace fa::core::kernels
