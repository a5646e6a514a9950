// The strip that reads the rows of keys in place, compared bit by bit with the strip of the same width on rows that
// were copied.

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/kernels/bf16_matrix.h"
#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

/// The same rows twice: next to each other, and in any order with NaN between them.
class ScatteredRows {
 public:
  ScatteredRows(int64_t rows, int64_t columns, uint32_t seed)
      : together_(rows, columns, columns, seed), scattered_(rows, columns, columns + 3, seed) {
    places_.resize(static_cast<size_t>(rows));
    std::iota(places_.begin(), places_.end(), int64_t{0});
    std::mt19937 random(seed);
    std::shuffle(places_.begin(), places_.end(), random);
    for (int64_t r = 0; r < rows; ++r) {
      addresses_.push_back(scattered_.row(Place(r)));
      for (int64_t c = 0; c < columns; ++c) Set(r, c, together_.at(r, c));
    }
    // What is fetched ahead may be any address.
    addresses_.resize(static_cast<size_t>(rows + kAhead), addresses_.back());
  }
  void Set(int64_t r, int64_t c, float x) {
    together_.Set(r, c, x);
    scattered_.Set(Place(r), c, x);
  }
  [[nodiscard]] RowBlock together() const { return together_.block(); }
  [[nodiscard]] RowBlock in_place(int64_t ahead = 0) const {
    return {.dtype = DType::kBF16, .fetch_ahead = ahead, .rows = addresses_.data()};
  }
  [[nodiscard]] int64_t rows() const { return together_.rows(); }

  static constexpr int64_t kAhead = 32;

 private:
  [[nodiscard]] int64_t Place(int64_t r) const { return places_[static_cast<size_t>(r)]; }

  Bf16Matrix together_, scattered_;
  std::vector<int64_t> places_;
  std::vector<const void*> addresses_;
};

class PairHeadsInPlaceTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam() && !Includes(DetectIsa(), Isa::kAvx512Bf16)) {
      GTEST_SKIP() << "this CPU executes no dot products of bf16";
    }
    ASSERT_NE(table().heads_in_place, nullptr);
  }
  [[nodiscard]] static const KernelTable& table() {
    return GetParam() ? EmulatedPairs() : Kernels(Isa::kAvx512Bf16, DType::kBF16);
  }
  [[nodiscard]] static const StripKernels& in_place() { return *table().heads_in_place; }
  [[nodiscard]] static const StripKernels& strip() { return table().narrowest(); }
  [[nodiscard]] static int64_t width() { return strip().width; }

  /// V as the strip's product takes it.
  [[nodiscard]] static std::vector<float> Paired(const ScatteredRows& v, int64_t dv) {
    std::vector<float> words(static_cast<size_t>(table().rows->PairedFloats(v.rows(), dv)));
    table().rows->pair_rows(v.together(), v.rows(), dv, words.data(), dv);
    return words;
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, PairHeadsInPlaceTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Emulated, PairHeadsInPlaceTest, testing::Values(true));

bool SameBits(float x, float y) {
  return (std::isnan(x) && std::isnan(y)) || std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
}

TEST_P(PairHeadsInPlaceTest, IsTheNarrowestStripWithItsStateByRows) {
  EXPECT_TRUE(in_place().in_place);
  EXPECT_TRUE(in_place().state_by_row);
  EXPECT_EQ(in_place().width, width());
  EXPECT_EQ(in_place().rows, width());
  EXPECT_EQ(in_place().softmax, strip().softmax);
}

TEST_P(PairHeadsInPlaceTest, ScoresHaveTheBitsOfTheStripForEveryTail) {
  for (const int64_t d : {1, 2, 7, 8, 9, 31, 32, 40, 65, 96}) {
    const Matrix q(strip().PanelRows(d), width(), width(), 1);
    std::vector<float> panel(static_cast<size_t>(q.rows() * width()));
    for (size_t i = 0; i < panel.size(); ++i) {
      // Words of two numbers that are no NaN.
      const uint32_t upper = std::bit_cast<uint32_t>(q.values()[i]) & 0xffff0000u;
      const bool half = d % 2 != 0 && static_cast<int64_t>(i) / width() == q.rows() - 1;
      panel[i] = std::bit_cast<float>(half ? upper >> 16 : upper | (upper >> 16 ^ 0x8001u));
    }
    for (const int64_t keys : {1, 3, 4, 7, 15, 16, 17, 35}) {
      const ScatteredRows k(keys, d, 2);
      for (const bool accumulate : {false, true}) {
        for (const int64_t ahead : {int64_t{0}, ScatteredRows::kAhead}) {
          Matrix want(keys, width(), width(), 3);
          Matrix have = want;
          std::vector<float> want_max(static_cast<size_t>(width()), -1.0f), have_max = want_max;
          FetchList::Run run{reinterpret_cast<const char*>(panel.data()),
                             reinterpret_cast<const char*>(panel.data() + panel.size())};
          FetchList list{.run = &run, .end = &run + 1};
          RowBlock rows = k.in_place(ahead);
          if (ahead == 0) {
            rows.fetch = &list;
            rows.fetch_lines = 9;
          }
          strip().scores(k.together(), keys, panel.data(), d, accumulate, want.data(), want_max.data());
          in_place().scores(rows, keys, panel.data(), d, accumulate, have.data(), have_max.data());
          for (int64_t key = 0; key < keys; ++key) {
            for (int64_t lane = 0; lane < width(); ++lane) {
              ASSERT_TRUE(SameBits(have.at(key, lane), want.at(key, lane))) << d << " " << keys << " key " << key;
            }
          }
          ASSERT_EQ(have_max, want_max);
          ASSERT_TRUE(have.Intact());
        }
      }
    }
  }
}

TEST_P(PairHeadsInPlaceTest, ProductHasTheBitsOfTheStripForEveryTail) {
  for (const int64_t keys : {1, 2, 3, 8, 17, 127, 128, 129, 300}) {
    for (const int64_t dv : {1, 3, 4, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 130}) {
      const ScatteredRows v(keys, dv, 4);
      const std::vector<float> words = Paired(v, dv);
      Matrix p(keys + 1, width(), width(), 5), alpha(1, width(), width(), 6);
      strip().pair_keys(p.data(), keys, p.data());
      for (const bool scaled : {false, true}) {
        const float* a = scaled ? alpha.data() : nullptr;
        Matrix want(dv, width(), width(), 7);
        Matrix have(width(), dv, dv, 7);
        for (int64_t c = 0; c < dv; ++c) {
          for (int64_t lane = 0; lane < width(); ++lane) have.at(lane, c) = want.at(c, lane);
        }
        strip().product(table().rows->Paired(words.data(), dv), keys, p.data(), dv, a, want.data());
        in_place().product(v.in_place(), keys, p.data(), dv, a, have.data());
        for (int64_t c = 0; c < dv; ++c) {
          for (int64_t lane = 0; lane < width(); ++lane) {
            ASSERT_TRUE(SameBits(have.at(lane, c), want.at(c, lane))) << keys << " keys, column " << c << " of " << dv;
          }
        }
        ASSERT_TRUE(have.Intact());
      }
    }
  }
}

TEST_P(PairHeadsInPlaceTest, ExactProductSkipsMaskedPairsAsTheStripDoes) {
  for (const int64_t keys : {4, 5}) {
    for (const int64_t dv : {2, 17, 40}) {
      ScatteredRows v(keys, dv, 8);
      v.Set(2, 0, kNan);
      v.Set(3, 1, kInf);
      const std::vector<float> words = Paired(v, dv);
      Matrix p(keys, width(), width(), 9), alpha(1, width(), width(), 10);
      for (int64_t lane = 0; lane < width(); lane += 2) p.at(2, lane) = p.at(3, lane) = kMaskedProbability;
      Matrix want(dv, width(), width(), 11);
      Matrix have(width(), dv, dv, 11);
      for (int64_t c = 0; c < dv; ++c) {
        for (int64_t lane = 0; lane < width(); ++lane) have.at(lane, c) = want.at(c, lane);
      }
      strip().product_exact(table().rows->Paired(words.data(), dv), keys, p.data(), dv, alpha.data(), want.data());
      in_place().product_exact(v.in_place(), keys, p.data(), dv, alpha.data(), have.data());
      for (int64_t c = 0; c < dv; ++c) {
        for (int64_t lane = 0; lane < width(); ++lane) {
          ASSERT_TRUE(SameBits(have.at(lane, c), want.at(c, lane))) << "column " << c << " of " << dv;
          if (c < 2) {
            EXPECT_EQ(std::isfinite(have.at(lane, c)), lane % 2 == 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
