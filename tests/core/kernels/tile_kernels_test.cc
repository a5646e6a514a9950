// Tests, with emulated instructions, what only kernels of the tile unit can do. Their products may begin in the middle
// of a group of rows, and one loop runs three kernels. pair_kernels_test.cc tests what all kernels of bf16 pairs can
// do.

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/bf16_matrix.h"
#include "core/kernels/kernel_facts.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

const KernelTable& Tiles() { return Kernels(kAmxEmulated, DType::kBF16); }

/// Rows of bf16 numbers without gaps.
struct Rows {
  Rows(int64_t count, int64_t columns, uint32_t seed) : stride(columns) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bits.resize(static_cast<size_t>(count * columns));
    for (uint16_t& value : bits) value = BitsOf(normal(random));
  }
  [[nodiscard]] RowBlock block() const { return {bits.data(), DType::kBF16, stride}; }
  [[nodiscard]] uint16_t& at(int64_t r, int64_t c) { return bits[static_cast<size_t>(r * stride + c)]; }
  int64_t stride;
  std::vector<uint16_t> bits;
};

std::vector<float> Paired(const Rows& rows, int64_t count) {
  const RowKernels& kernels = *Tiles().rows;
  std::vector<float> words(static_cast<size_t>(kernels.PairedFloats(count, rows.stride)), kNan);
  kernels.pair_rows(rows.block(), count, rows.stride, words.data(), rows.stride);
  return words;
}

std::vector<float> Panel(const StripKernels& kernels, const Rows& q, int64_t count) {
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < count; ++i) lanes.push_back(q.bits.data() + i * q.stride);
  std::vector<float> panel(static_cast<size_t>(kernels.PanelRows(q.stride) * kernels.width));
  kernels.pack_queries({lanes.data(), DType::kBF16, count}, q.stride, 1, panel.data());
  return panel;
}

TEST(TileKernels, AreOneOrTwoTilesOfLanes) {
  ASSERT_EQ(Tiles().strip_count, 2);
  EXPECT_EQ(Tiles().strips[0].width, 32);
  EXPECT_EQ(Tiles().strips[1].width, 16);
  EXPECT_EQ(Tiles().rows->pair_group, 32);
  const LevelFacts own = FactsOf(Isa::kAvx512Amx, DType::kBF16);
  EXPECT_STREQ(own.strips[0].name, "bf16_32x32_avx512_amx");
  EXPECT_STREQ(own.strips[1].name, "bf16_32x16_avx512_amx");
}

TEST(TileKernels, AProductMayBeginInsideAGroupWhoseOtherRowsAreNan) {
  constexpr int64_t kRows = 71, kDv = 19;
  const auto check = [&](int64_t strip, int64_t begin, int64_t end) {
    const StripKernels& kernels = Tiles().strips[strip];
    const int64_t width = kernels.width;
    Rows v(kRows, kDv, 1);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kDv && (r < begin || r >= end); ++c) v.at(r, c) = BitsOf(kNan);
    }
    const std::vector<float> words = Paired(v, kRows);
    RowBlock block = Tiles().rows->Paired(words.data(), kDv);
    block.data = words.data() + begin / 32 * 16 * kDv;
    block.skip = begin % 32;
    Matrix p(end - begin, width, width, 2), o(kDv, width, width, 3), alpha(1, width, width, 4);
    kernels.pairs.pair_keys(p.data(), end - begin, p.data());
    const Matrix before = o;
    kernels.product(block, end - begin, p.data(), kDv, alpha.data(), o.data());
    kernels.pairs.unpair_keys(p.data(), end - begin);
    ExpectSums(
        o, width, end - begin, kRows + 2,
        [&](int64_t c, int64_t lane) { return double{alpha.at(0, lane)} * before.at(c, lane); },
        [&](int64_t c, int64_t lane, int64_t r) { return double{FloatOf(v.at(begin + r, c))} * p.at(r, lane); });
  };
  ForEachCase(check, Axis{"strip", {0, 1}}, Axis{"begin", {0, 8, 24, 32, 40, 64}}, Axis{"end", {int64_t{66}, kRows}});
}

TEST(TileKernels, TheBitsOfALaneDoNotDependOnTheWidth) {
  constexpr int64_t kKeys = 37, kD = 45;
  const Rows q(32, kD, 5), k(kKeys, kD, 6), v(kKeys, kD, 7);
  const std::vector<float> words = Paired(v, kKeys);
  const StripKernels &wide = Tiles().strips[0], &narrow = Tiles().strips[1];
  Matrix s(kKeys, 32, 32, 8), o(kD, 32, 32, 9), narrow_s(kKeys, 16, 16, 8), narrow_o(kD, 16, 16, 9);
  wide.scores(k.block(), kKeys, Panel(wide, q, 32).data(), kD, false, s.data(), nullptr);
  narrow.scores(k.block(), kKeys, Panel(narrow, q, 16).data(), kD, false, narrow_s.data(), nullptr);
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t lane = 0; lane < 16; ++lane) ASSERT_EQ(narrow_s.at(key, lane), s.at(key, lane)) << key;
  }
  wide.pairs.pair_keys(s.data(), kKeys, s.data());
  narrow.pairs.pair_keys(narrow_s.data(), kKeys, narrow_s.data());
  const RowBlock block = Tiles().rows->Paired(words.data(), kD);
  wide.product(block, kKeys, s.data(), kD, nullptr, o.data());
  narrow.product(block, kKeys, narrow_s.data(), kD, nullptr, narrow_o.data());
  for (int64_t c = 0; c < kD; ++c) {
    for (int64_t lane = 0; lane < 16; ++lane) ASSERT_EQ(narrow_o.at(c, lane), o.at(c, lane)) << c;
  }
}

/// A product, a softmax and scores. Each works on its own tile.
struct Stages {
  Stages(const StripKernels& of, int64_t keys, int64_t d, int64_t dv)
      : q(of.width, d, 10),
        k(keys, d, 11),
        v(keys, dv, 12),
        panel(Panel(of, q, of.width)),
        words(Paired(v, keys)),
        p(keys, of.width, of.width, 13),
        softmax_s(keys, of.width, of.width, 14),
        s(keys, of.width, of.width, 15),
        o(dv, of.width, of.width, 16),
        rows(6, of.width, of.width, 17) {
    of.pairs.pair_keys(p.data(), keys, p.data());
    product = {.v = Tiles().rows->Paired(words.data(), dv),
               .keys = keys,
               .p = p.data(),
               .dv = dv,
               .alpha = rows.data(),
               .o = o.data()};
    const auto row = [&](int64_t r) { return rows.data() + r * of.width; };
    softmax = {.s = softmax_s.data(),
               .keys = keys,
               .factor = 0.7f,
               .block_max = row(1),
               .row_max = row(2),
               .row_sum = row(3),
               .alpha = row(4)};
    scores = {.k = k.block(), .keys = keys, .panel = panel.data(), .d = d, .s = s.data(), .row_max = row(5)};
  }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  Rows q, k, v;
  std::vector<float> panel, words;
  Matrix p, softmax_s, s, o, rows;
  ProductArgs product;
  SoftmaxArgs softmax;
  ScoreArgs scores;
};

TEST(TileKernels, StagesInOneLoopHaveTheBitsTheyHaveAlone) {
  enum Without { kProduct, kSoftmax, kScores, kNothing };
  using Sizes = std::pair<int64_t, int64_t>;
  const auto check = [&](int64_t strip, int64_t keys, Sizes sizes, Without without) {
    const StripKernels& kernels = Tiles().strips[strip];
    ASSERT_NE(kernels.overlapped, nullptr);
    const auto [d, dv] = sizes;
    Stages one(kernels, keys, d, dv), alone(kernels, keys, d, dv);
    kernels.overlapped(without == kProduct ? nullptr : &one.product, without == kSoftmax ? nullptr : &one.softmax,
                       without == kScores ? nullptr : &one.scores);
    if (without != kProduct) {
      kernels.product(alone.product.v, keys, alone.p.data(), dv, alone.product.alpha, alone.o.data());
    }
    if (without != kSoftmax) {
      const SoftmaxArgs& x = alone.softmax;
      kernels.softmax(x.s, keys, x.factor, x.block_max, x.row_max, x.row_sum, x.alpha);
    }
    if (without != kScores) {
      kernels.scores(alone.k.block(), keys, alone.panel.data(), d, false, alone.s.data(), alone.scores.row_max);
    }
    EXPECT_TRUE(SameBits(one.o, alone.o));
    EXPECT_TRUE(SameBits(one.softmax_s, alone.softmax_s));
    EXPECT_TRUE(SameBits(one.s, alone.s));
    EXPECT_TRUE(SameBits(one.rows, alone.rows));
  };
  ForEachCase(check, Axis{"strip", {0, 1}}, Axis{"keys", {1, 6, 33, 64, 75}},
              Axis<Sizes>{"sizes", {{64, 32}, {33, 49}, {5, 70}}},
              Axis{"without", {kProduct, kSoftmax, kScores, kNothing}});
}

TEST(TileKernels, OuterProductsAddToRowsAnywhere) {
  constexpr int64_t kKeys = 35, kColumns = 21;
  const StripKernels& kernels = Tiles().strips[0];
  const int64_t rows = 41, strips = 2, tile = kKeys * kernels.OuterWidth();
  const Rows b(rows, kColumns, 18);
  std::vector<float> panel(static_cast<size_t>((rows + 1) / 2 * Tiles().rows->PanelColumns(kColumns)), kNan);
  Tiles().rows->pack_rows(b.block(), rows, kColumns, panel.data());
  Matrix a(strips * kKeys, kernels.width, kernels.width, 19);
  std::vector<float> values(static_cast<size_t>(strips * tile));
  for (int64_t strip = 0; strip < strips; ++strip) {
    kernels.pairs.pair_lanes(a.data() + strip * kKeys * kernels.width, kKeys, values.data() + strip * tile);
  }
  Matrix c(kKeys, kColumns, kColumns, 20), scattered(kKeys, kColumns, kColumns + 5, 20);
  std::vector<float*> targets;
  for (int64_t key = 0; key < kKeys; ++key) {
    float* row = scattered.data() + (key * 8 % kKeys) * scattered.stride();
    std::memcpy(row, c.data() + key * kColumns, sizeof(float) * kColumns);
    targets.push_back(row);
  }
  OuterArgs args{.a = values.data(),
                 .strip_stride = tile,
                 .width = kernels.width,
                 .rows = rows,
                 .b = panel.data(),
                 .b_rows = rows,
                 .keys = kKeys,
                 .columns = kColumns,
                 .c = c.data(),
                 .c_stride = kColumns,
                 .accumulate = true};
  Tiles().rows->outer(args);
  args.c_rows = targets.data();
  Tiles().rows->outer(args);
  for (int64_t key = 0; key < kKeys; ++key) {
    for (int64_t column = 0; column < kColumns; ++column) {
      ASSERT_EQ(targets[static_cast<size_t>(key)][column], c.at(key, column)) << key << " " << column;
    }
  }
  ASSERT_TRUE(scattered.Intact());
}

}  // namespace
}  // namespace fa::core::kernels
