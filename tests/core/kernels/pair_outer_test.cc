// Compares the outer products of bf16 pairs with computations in double. Operands are bf16, so every product of two
// operands is exact in f32, and only the sums round.

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/kernels/pair_fixture.h"

namespace fa::core::kernels {
namespace {

class PairOuterTest : public OnPairs {};

INSTANTIATE_TEST_SUITE_P(Registry, PairOuterTest, testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Emulated, PairOuterTest, testing::Values(3));
INSTANTIATE_TEST_SUITE_P(EmulatedTiles, PairOuterTest, testing::Values(6, 7));

struct OuterSizes {
  int64_t keys, columns, rows;
};

std::vector<OuterSizes> EveryTail(int64_t width) {
  std::vector<OuterSizes> all;
  for (const int64_t keys : {1, 2, 3, 4, 5, 6, 7, 9, 13, 19}) {
    for (const int64_t columns : {1, 15, 16, 17, 33, 48, 67, 144}) {
      for (const int64_t rows : {int64_t{1}, width - 1, width, 2 * width + 3}) all.push_back({keys, columns, rows});
    }
  }
  return all;
}

/// Operands of an outer product. Lanes without a row are NaN, and the panel is filled with NaN before it is packed.
class OuterCase {
 public:
  OuterCase(const RowKernels& kernels, const StripKernels& strip, const OuterSizes& sizes, uint32_t seed)
      : sizes_(sizes),
        width_(strip.width),
        b_(sizes.rows, sizes.columns, sizes.columns + 3, seed),
        panel_(static_cast<size_t>(CeilDiv(sizes.rows, 2) * kernels.PanelColumns(sizes.columns)), kNan) {
    const int64_t strips = CeilDiv(sizes.rows, width_);
    Matrix tiles(strips * sizes.keys, width_, width_, seed + 1);
    for (int64_t row = sizes.rows; row < strips * width_; ++row) {
      for (int64_t key = 0; key < sizes.keys; ++key) tiles.at(row / width_ * sizes.keys + key, row % width_) = kNan;
    }
    a_.resize(static_cast<size_t>(strips * tile()));
    for (int64_t s = 0; s < strips; ++s) {
      strip.pairs.pair_lanes(tiles.data() + s * tile(), sizes.keys, a_.data() + s * tile());
    }
    kernels.pack_rows(b_.block(), sizes.rows, sizes.columns, panel_.data());
  }
  [[nodiscard]] OuterArgs Into(Matrix& c) const {
    return {.a = a_.data(),
            .strip_stride = tile(),
            .width = width_,
            .rows = sizes_.rows,
            .b = panel_.data(),
            .b_rows = sizes_.rows,
            .keys = sizes_.keys,
            .columns = sizes_.columns,
            .c = c.data(),
            .c_stride = c.stride(),
            .accumulate = true};
  }
  /// Returns the operand's element as pair_lanes has rounded it.
  [[nodiscard]] float a(int64_t key, int64_t row) const {
    uint16_t bits;
    const auto* rounded = reinterpret_cast<const char*>(a_.data() + row / width_ * tile());
    std::memcpy(&bits, rounded + sizeof bits * static_cast<size_t>(key * width_ + row % width_), sizeof bits);
    return FloatOf(bits);
  }
  [[nodiscard]] const Bf16Matrix& b() const { return b_; }

 private:
  [[nodiscard]] int64_t tile() const { return sizes_.keys * width_; }

  OuterSizes sizes_;
  int64_t width_;
  std::vector<float> a_;
  Bf16Matrix b_;
  std::vector<float> panel_;
};

TEST_P(PairOuterTest, EqualsDoubleForEveryTail) {
  for (const OuterSizes& sizes : EveryTail(width())) {
    SCOPED_TRACE(testing::Message() << sizes.keys << " " << sizes.columns << " " << sizes.rows);
    const OuterCase x(rows(), kernels(), sizes, 16);
    Matrix c(sizes.keys, sizes.columns, sizes.columns + 1, 18);
    const Matrix before = c;
    Matrix exact = c;
    rows().outer(x.Into(c));
    rows().outer_exact(x.Into(exact));
    for (const Matrix* got : {&c, &exact}) {
      ASSERT_NO_FATAL_FAILURE(ExpectSums(
          *got, sizes.columns, sizes.rows, sizes.rows + 1,
          [&](int64_t key, int64_t column) { return double{before.at(key, column)}; },
          [&](int64_t key, int64_t column, int64_t row) { return double{x.a(key, row)} * x.b().at(row, column); }));
    }
  }
}

class TwoPairOuterProductsTest : public PairOuterTest {};

INSTANTIATE_TEST_SUITE_P(Registry, TwoPairOuterProductsTest, testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Emulated, TwoPairOuterProductsTest, testing::Values(3));

TEST_P(TwoPairOuterProductsTest, AtOnceHaveTheBitsOfOneAfterTheOther) {
  constexpr int64_t kMostOfVectors = 4;  // vector instructions add at most this many rows; the tile unit adds more
  if (rows().pair_group > kMostOfVectors) GTEST_SKIP() << "the tile unit makes one outer product at a time";
  ASSERT_NE(rows().outer_both, nullptr);
  for (const OuterSizes& sizes : EveryTail(width())) {
    const OuterCase x(rows(), kernels(), sizes, 22), y(rows(), kernels(), sizes, 24);
    Matrix want(sizes.keys, sizes.columns, sizes.columns + 1, 26);
    Matrix have = want;
    rows().outer(x.Into(want));
    rows().outer(y.Into(want));
    rows().outer_both(x.Into(have), y.Into(have));
    ASSERT_TRUE(SameBits(have, want)) << sizes.keys << " " << sizes.columns << " " << sizes.rows;
  }
}

TEST_P(PairOuterTest, ExactSkipsMaskedPairsOnly) {
  constexpr int64_t kRows = 4, kColumns = 2;
  Bf16Matrix b(kRows, kColumns, kColumns, 19);
  b.Set(1, 0, kNan);
  b.Set(2, 1, kInf);
  std::vector<float> panel(static_cast<size_t>(kRows / 2 * rows().PanelColumns(kColumns)));
  rows().pack_rows(b.block(), kRows, kColumns, panel.data());
  Matrix a(2, width(), width(), 20);
  a.at(0, 1) = a.at(0, 2) = kMaskedProbability;
  std::vector<float> values(static_cast<size_t>(2 * width()));
  kernels().pairs.pair_lanes(a.data(), 2, values.data());
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
