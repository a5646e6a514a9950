// The kernels of bf16 pairs against double. Their operands are bf16, so every product of two operands is exact in f32
// and only the sums round. Where the CPU has no VDPBF16PS, the same text runs on emulated words.

#include <cmath>
#include <cstring>
#include <vector>

#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

uint16_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}
float FloatOf(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float x;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

/// Rows of bf16, `stride` apart, with NaN between them.
class Bf16Matrix {
 public:
  Bf16Matrix(int64_t rows, int64_t columns, int64_t stride, uint32_t seed) : rows_(rows), stride_(stride) {
    bits_.assign(static_cast<size_t>(rows * stride + kGuard), BitsOf(kNan));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) Set(r, c, normal(random));
    }
  }
  void Set(int64_t r, int64_t c, float x) { bits_[static_cast<size_t>(r * stride_ + c)] = BitsOf(x); }
  [[nodiscard]] float at(int64_t r, int64_t c) const { return FloatOf(bits_[static_cast<size_t>(r * stride_ + c)]); }
  [[nodiscard]] RowBlock block() const { return {bits_.data(), DType::kBF16, stride_}; }
  [[nodiscard]] const uint16_t* row(int64_t r) const { return bits_.data() + r * stride_; }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t rows_, stride_;
  std::vector<uint16_t> bits_;
};

class PairKernelsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!table().pairs() || GetParam() % kStrips >= table().strip_count) {
      GTEST_SKIP() << "this CPU executes no dot products of bf16, or its level has fewer strips";
    }
  }
  static constexpr int kStrips = 3;  // of a level; those of the next have the numbers after these
  [[nodiscard]] static const KernelTable& table() {
    switch (GetParam() / kStrips) {
      case 0: return Kernels(DetectIsa(), DType::kBF16);
      case 1: return EmulatedPairs();
      default: return Kernels(Isa::kAmxEmulated, DType::kBF16);
    }
  }
  [[nodiscard]] static const StripKernels& kernels() { return table().strips[GetParam() % kStrips]; }
  [[nodiscard]] static const RowKernels& rows() { return *table().rows; }
  [[nodiscard]] static int64_t width() { return kernels().width; }

  [[nodiscard]] static std::vector<float> Panel(const Bf16Matrix& q, int64_t count, int64_t d, float multiplier) {
    std::vector<const void*> lanes(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) lanes[static_cast<size_t>(i)] = q.row(i);
    std::vector<float> panel(static_cast<size_t>(kernels().PanelRows(d) * width()));
    kernels().pack_queries({lanes.data(), DType::kBF16, count}, d, multiplier, panel.data());
    return panel;
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, PairKernelsTest, testing::Values(0, 1, 2));
// The wider of the emulated strips, because the tests need some lanes.
INSTANTIATE_TEST_SUITE_P(Emulated, PairKernelsTest, testing::Values(3));
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, PairKernelsTest, testing::Values(6, 7));

TEST_P(PairKernelsTest, ScoresEqualDoubleForEveryTail) {
  for (const int64_t d : {1, 2, 3, 16, 31, 32, 33, 40, 64, 97}) {
    const int64_t count = width() - 1;
    const Bf16Matrix q(count, d, d + 3, 1);
    const std::vector<float> panel = Panel(q, count, d, -1);
    for (const int64_t keys : {1, 2, 7, 8, 9, 16, 17, 35}) {
      const Bf16Matrix k(keys, d, d + 1, 2);
      for (const bool accumulate : {false, true}) {
        Matrix s(keys, width(), width(), 3);
        const Matrix before = s;
        std::vector<float> row_max(static_cast<size_t>(width()), kMaskedScore);
        kernels().scores(k.block(), keys, panel.data(), d, accumulate, s.data(), row_max.data());
        for (int64_t lane = 0; lane < width(); ++lane) {
          float largest = kMaskedScore;
          for (int64_t key = 0; key < keys; ++key) {
            double want = accumulate ? before.at(key, lane) : 0.0, magnitude = std::fabs(want);
            for (int64_t c = 0; c < d && lane < count; ++c) {
              const double term = -static_cast<double>(q.at(lane, c)) * k.at(key, c);
              want += term;
              magnitude += std::fabs(term);
            }
            ASSERT_NEAR(s.at(key, lane), want, kEps * static_cast<double>(d + 1) * magnitude) << d << " " << keys;
            largest = std::max(largest, s.at(key, lane));
          }
          ASSERT_EQ(row_max[static_cast<size_t>(lane)], largest);
        }
        ASSERT_TRUE(s.Intact());
      }
    }
  }
}

TEST_P(PairKernelsTest, ProductEqualsDoubleForEveryTail) {
  for (const int64_t keys : {1, 2, 3, 8, 17, 40}) {
    for (const int64_t dv : {1, 3, 7, 8, 9, 16, 17, 40}) {
      const Bf16Matrix v(keys + 1, dv, dv + 2, 4);
      std::vector<float> pairs(static_cast<size_t>(rows().PairedFloats(keys + 1, dv)), kNan);
      rows().pair_rows(v.block(), keys + 1, dv, pairs.data(), dv);
      const Bf16Matrix p(keys, width(), width(), 5);
      Matrix tile(keys, width(), width(), 6);
      for (int64_t key = 0; key < keys; ++key) {
        for (int64_t lane = 0; lane < width(); ++lane) tile.at(key, lane) = p.at(key, lane);
      }
      Matrix o(dv, width(), width(), 7), alpha(1, width(), width(), 8);
      const Matrix before = o;
      Matrix exact = o;
      const RowBlock block = rows().Paired(pairs.data(), dv);
      kernels().product_exact(block, keys, tile.data(), dv, alpha.data(), exact.data());
      kernels().pair_keys(tile.data(), keys, tile.data());
      kernels().product(block, keys, tile.data(), dv, alpha.data(), o.data());
      for (int64_t c = 0; c < dv; ++c) {
        for (int64_t lane = 0; lane < width(); ++lane) {
          double want = static_cast<double>(alpha.at(0, lane)) * before.at(c, lane), magnitude = std::fabs(want);
          for (int64_t key = 0; key < keys; ++key) {
            const double term = static_cast<double>(v.at(key, c)) * p.at(key, lane);
            want += term;
            magnitude += std::fabs(term);
          }
          const double tolerance = kEps * static_cast<double>(keys + 2) * magnitude;
          ASSERT_NEAR(o.at(c, lane), want, tolerance) << keys << " " << dv;
          ASSERT_NEAR(exact.at(c, lane), want, tolerance) << keys << " " << dv;
        }
      }
      ASSERT_TRUE(o.Intact());
      kernels().unpair_keys(tile.data(), keys);
      for (int64_t key = 0; key < keys; ++key) {
        for (int64_t lane = 0; lane < width(); ++lane) ASSERT_EQ(tile.at(key, lane), p.at(key, lane));
      }
    }
  }
}

TEST_P(PairKernelsTest, RowBesideAnOddLastKeyIsNotMultiplied) {
  constexpr int64_t kKeys = 5, kDv = 3;
  Bf16Matrix v(kKeys + 1, kDv, kDv, 9);
  v.Set(kKeys, 1, kNan);
  std::vector<float> pairs(static_cast<size_t>(rows().PairedFloats(kKeys + 1, kDv)));
  rows().pair_rows(v.block(), kKeys + 1, kDv, pairs.data(), kDv);
  Matrix p(kKeys, width(), width(), 10), o(kDv, width(), width(), 11);
  kernels().pair_keys(p.data(), kKeys, p.data());
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

TEST_P(PairKernelsTest, SoftmaxWritesZeroForASubnormalProbability) {
  constexpr float kScores[] = {0.0f, -126.0f, -126.01f, -149.0f};
  constexpr int64_t kKeys = 4;
  Matrix s(kKeys, width(), width(), 30), row_max(1, width(), width(), 0), row_sum = row_max, alpha = row_max;
  std::vector<float> block_max(static_cast<size_t>(width()), 0.0f);
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t r = 0; r < kKeys; ++r) s.at(r, lane) = kScores[r];
    row_max.at(0, lane) = 0.0f;
    row_sum.at(0, lane) = 0.0f;
  }
  kernels().softmax_pairs(s.data(), kKeys, 1.0f, block_max.data(), row_max.data(), row_sum.data(), alpha.data());
  kernels().unpair_keys(s.data(), kKeys);
  for (int64_t lane = 0; lane < width(); ++lane) {
    EXPECT_EQ(s.at(0, lane), 1.0f);
    EXPECT_EQ(s.at(1, lane), 0x1p-126f);
    EXPECT_EQ(s.at(2, lane), 0.0f);
    EXPECT_EQ(s.at(3, lane), 0.0f);
  }
}

TEST_P(PairKernelsTest, RoundsToNearestEvenAndKeepsNan) {
  Matrix s(2, width(), width(), 15);
  s.at(0, 0) = 1.0f + 0x1p-8f;             // half way, down to even
  s.at(0, 1) = 1.0f + 0x1p-7f + 0x1p-8f;   // half way, up to even
  s.at(0, 2) = 1.0f + 0x1p-8f + 0x1p-20f;  // above half way
  s.at(0, 3) = kNan;
  s.at(1, 0) = -3.0f;
  s.at(1, 1) = -kInf;
  std::vector<float> rounded(static_cast<size_t>(width()), 0.0f);
  kernels().pair_lanes(s.data(), 2, rounded.data());
  std::vector<uint16_t> bits(static_cast<size_t>(2 * width()));
  std::memcpy(bits.data(), rounded.data(), bits.size() * sizeof bits[0]);
  EXPECT_EQ(FloatOf(bits[0]), 1.0f);
  EXPECT_EQ(FloatOf(bits[1]), 1.0f + 0x1p-6f);
  EXPECT_EQ(FloatOf(bits[2]), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isnan(FloatOf(bits[3])));
  EXPECT_EQ(FloatOf(bits[static_cast<size_t>(width())]), -3.0f);
  EXPECT_EQ(FloatOf(bits[static_cast<size_t>(width() + 1)]), -kInf);
}

TEST_P(PairKernelsTest, OuterProductEqualsDoubleForEveryTail) {
  for (const int64_t keys : {1, 5, 6, 9, 19}) {
    for (const int64_t columns : {1, 15, 16, 17, 33, 48, 67, 144}) {
      for (const int64_t count : {int64_t{1}, width() - 1, width(), 2 * width() + 3}) {
        const int64_t strips = (count + width() - 1) / width(), tile = keys * width();
        Matrix a(strips * keys, width(), width(), 16);
        std::vector<float> values(static_cast<size_t>(strips * tile));
        const auto at = [&](int64_t key, int64_t row) -> float& {
          return a.at(row / width() * keys + key, row % width());
        };
        for (int64_t row = count; row < strips * width(); ++row) {
          for (int64_t key = 0; key < keys; ++key) at(key, row) = kNan;
        }
        for (int64_t strip = 0; strip < strips; ++strip) {
          kernels().pair_lanes(a.data() + strip * tile, keys, values.data() + strip * tile);
        }
        const auto rounded = [&](int64_t key, int64_t row) {
          uint16_t bits;
          std::memcpy(
              &bits,
              reinterpret_cast<const char*>(values.data() + row / width() * tile) + 2 * (key * width() + row % width()),
              sizeof bits);
          return FloatOf(bits);
        };
        const Bf16Matrix b(count, columns, columns + 3, 17);
        std::vector<float> panel(static_cast<size_t>((count + 1) / 2 * rows().panel_columns(columns)), kNan);
        rows().pack_rows(b.block(), count, columns, panel.data());
        Matrix c(keys, columns, columns + 1, 18);
        const Matrix before = c;
        Matrix exact = c;
        OuterArgs args{.a = values.data(),
                       .strip_stride = tile,
                       .width = width(),
                       .rows = count,
                       .b = panel.data(),
                       .b_rows = count,
                       .keys = keys,
                       .columns = columns,
                       .c = c.data(),
                       .c_stride = c.stride(),
                       .accumulate = true};
        rows().outer(args);
        args.c = exact.data();
        rows().outer_exact(args);
        for (int64_t key = 0; key < keys; ++key) {
          for (int64_t column = 0; column < columns; ++column) {
            double want = before.at(key, column), magnitude = std::fabs(want);
            for (int64_t row = 0; row < count; ++row) {
              const double term = static_cast<double>(rounded(key, row)) * b.at(row, column);
              want += term;
              magnitude += std::fabs(term);
            }
            const double tolerance = kEps * static_cast<double>(count + 1) * magnitude;
            ASSERT_NEAR(c.at(key, column), want, tolerance) << keys << " " << columns << " " << count;
            ASSERT_NEAR(exact.at(key, column), want, tolerance) << keys << " " << columns << " " << count;
          }
        }
        ASSERT_TRUE(c.Intact());
      }
    }
  }
}

TEST_P(PairKernelsTest, ExactOuterProductSkipsMaskedPairsOnly) {
  constexpr int64_t kRows = 4, kColumns = 2;
  Bf16Matrix b(kRows, kColumns, kColumns, 19);
  b.Set(1, 0, kNan);
  b.Set(2, 1, kInf);
  std::vector<float> panel(static_cast<size_t>(kRows / 2 * rows().panel_columns(kColumns)));
  rows().pack_rows(b.block(), kRows, kColumns, panel.data());
  Matrix a(2, width(), width(), 20);
  a.at(0, 1) = a.at(0, 2) = kMaskedProbability;
  std::vector<float> values(static_cast<size_t>(2 * width()));
  kernels().pair_lanes(a.data(), 2, values.data());
  Matrix c(2, kColumns, kColumns, 21);
  rows().outer_exact({.a = values.data(),
                      .strip_stride = 2 * width(),
                      .width = width(),
                      .rows = kRows,
                      .b = panel.data(),
                      .b_rows = kRows,
                      .keys = 2,
                      .columns = kColumns,
                      .c = c.data(),
                      .c_stride = kColumns});
  EXPECT_TRUE(std::isfinite(c.at(0, 0)) && std::isfinite(c.at(0, 1)));
  EXPECT_TRUE(std::isnan(c.at(1, 0)));
  EXPECT_FALSE(std::isfinite(c.at(1, 1)));
}

}  // namespace
}  // namespace fa::core::kernels
