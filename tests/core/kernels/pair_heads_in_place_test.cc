// Compares kernels that read rows of keys where they lie with kernels of the same width that read copied rows. All bits
// are equal, except in scores of long heads, which the two sum in different orders.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/bf16_matrix.h"
#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"
#include "support/guarded_buffer.h"

namespace fa::core::kernels {
namespace {

/// Rows stored twice: once without gaps, and once in a random order with NaN between them.
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
    // Kernels only fetch these addresses ahead, so any readable address will do.
    addresses_.resize(static_cast<size_t>(rows + kAhead), addresses_.back());
  }
  /// Returns the addresses of all rows, and `ahead` further addresses.
  [[nodiscard]] std::span<const std::byte> ListFor(int64_t ahead) const {
    return std::as_bytes(std::span(addresses_).first(static_cast<size_t>(rows() + ahead)));
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
  [[nodiscard]] float at(int64_t r, int64_t c) const { return together_.at(r, c); }

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

  /// Returns V in the form that the kernels' product takes.
  [[nodiscard]] static std::vector<float> Paired(const ScatteredRows& v, int64_t dv) {
    std::vector<float> words(static_cast<size_t>(table().rows->PairedFloats(v.rows(), dv)));
    table().rows->pair_rows(v.together(), v.rows(), dv, words.data(), dv);
    return words;
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, PairHeadsInPlaceTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Emulated, PairHeadsInPlaceTest, testing::Values(true));

TEST_P(PairHeadsInPlaceTest, IsTheNarrowestStripWithItsStateByRows) {
  EXPECT_TRUE(in_place().in_place);
  EXPECT_TRUE(in_place().state_by_row);
  EXPECT_EQ(in_place().width, width());
  EXPECT_EQ(in_place().rows, width());
  EXPECT_EQ(in_place().softmax, strip().softmax);
}

/// The scores of all keys, computed with keys in place or with copied keys, from the same rows of queries.
struct Scored {
  Matrix s;
  std::vector<float> max;
};

class PairHeadsInPlaceScores : public PairHeadsInPlaceTest {
 protected:
  [[nodiscard]] static std::vector<float> Panel(const StripKernels& kernels, const Bf16Matrix& q, int64_t d,
                                                int64_t heads, float multiplier) {
    std::vector<const void*> rows;
    for (int64_t i = 0; i < heads; ++i) rows.push_back(q.row(i));
    std::vector<float> panel(static_cast<size_t>(kernels.PanelRows(d) * width()), kNan);
    kernels.pack_queries({rows.data(), DType::kBF16, heads}, d, multiplier, panel.data());
    return panel;
  }
  [[nodiscard]] static Scored Score(const StripKernels& kernels, const RowBlock& rows, int64_t keys,
                                    const std::vector<float>& panel, int64_t d, bool accumulate) {
    Scored scored{.s = Matrix(keys, width(), width(), 3),
                  .max = std::vector<float>(static_cast<size_t>(width()), -1.0f)};
    kernels.scores(rows, keys, panel.data(), d, accumulate, scored.s.data(), scored.max.data());
    EXPECT_TRUE(scored.s.Intact());
    return scored;
  }
};

INSTANTIATE_TEST_SUITE_P(Cpu, PairHeadsInPlaceScores, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Emulated, PairHeadsInPlaceScores, testing::Values(true));

TEST_P(PairHeadsInPlaceScores, HaveTheBitsOfTheStripForEveryTailOfShortHeads) {
  const auto check = [&](int64_t d, int64_t keys, bool accumulate, int64_t ahead) {
    const Bf16Matrix q(width(), d, d, 1);
    const std::vector<float> panel = Panel(strip(), q, d, width() - 1, -1);
    ASSERT_EQ(std::memcmp(Panel(in_place(), q, d, width() - 1, -1).data(), panel.data(), panel.size() * sizeof(float)),
              0);
    const ScatteredRows k(keys, d, 2);
    const Scored want = Score(strip(), k.together(), keys, panel, d, accumulate);
    FetchList::Run run{reinterpret_cast<const char*>(panel.data()),
                       reinterpret_cast<const char*>(panel.data() + panel.size())};
    FetchList list{.run = &run, .end = &run + 1};
    RowBlock rows = k.in_place(ahead);
    if (ahead == 0) {
      rows.fetch = &list;
      rows.fetch_lines = 9;
    }
    const Scored have = Score(in_place(), rows, keys, panel, d, accumulate);
    ASSERT_TRUE(SameBits(have.s, want.s));
    ASSERT_EQ(have.max, want.max);
  };
  ForEachCase(check, Axis<int64_t>{"d", {1, 2, 7, 8, 9, 31, 65, 6 * width(), 6 * width() - 1, 8 * width() + 2}},
              Axis{"keys", {1, 3, 4, 7, 15, 16, 17, 35}}, Axis{"accumulate", {false, true}},
              Axis{"ahead", {int64_t{0}, ScatteredRows::kAhead}});
}

TEST_P(PairHeadsInPlaceScores, OfLongHeadsAreTheSumsAndDoNotDependOnTheKeysBeside) {
  const int64_t vector = 2 * width();
  const auto check = [&](int64_t d, float multiplier, int64_t keys, bool accumulate) {
    const Bf16Matrix q(width(), d, d, 1);
    const int64_t heads = width() - 1;
    const std::vector<float> panel = Panel(in_place(), q, d, heads, multiplier);
    const ScatteredRows k(keys, d, 2);
    const Matrix before(keys, width(), width(), 3);
    const Scored have = Score(in_place(), k.in_place(ScatteredRows::kAhead), keys, panel, d, accumulate);
    std::vector<float> max(static_cast<size_t>(width()), -1.0f);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        double sum = accumulate ? before.at(key, lane) : 0, size = std::abs(sum);
        for (int64_t c = 0; lane < heads && c < d; ++c) {
          const double product = double{multiplier} * q.at(lane, c) * k.at(key, c);
          sum += product;
          size += std::abs(product);
        }
        // Each lane adds d / width products and rounds each sum once. At most four rounds of additions then add
        // up the lanes, and one addition adds the previous score. The bound allows one more rounding.
        const double bound = (static_cast<double>(d / width()) + 6) * 0x1p-24 * size;
        ASSERT_NEAR(have.s.at(key, lane), sum, bound) << "key " << key << " lane " << lane;
        max[static_cast<size_t>(lane)] = std::max(max[static_cast<size_t>(lane)], have.s.at(key, lane));
      }
    }
    ASSERT_EQ(have.max, max);
    if (accumulate) return;
    FetchList::Run run{reinterpret_cast<const char*>(panel.data()),
                       reinterpret_cast<const char*>(panel.data() + panel.size())};
    FetchList list{.run = &run, .end = &run + 1};
    for (int64_t key = 0; key < keys; ++key) {
      RowBlock row = k.in_place();
      row.rows += key;
      row.fetch = &list;
      row.fetch_lines = 9;
      const Scored alone = Score(in_place(), row, 1, panel, d, false);
      for (int64_t lane = 0; lane < width(); ++lane) {
        ASSERT_TRUE(EqualBits(alone.s.at(0, lane), have.s.at(key, lane))) << d << " key " << key;
      }
    }
  };
  ForEachCase(check, Axis{"d", {4 * vector, 5 * vector, 16 * vector}}, Axis{"multiplier", {1.0f, -1.0f, 0.0f}},
              Axis{"keys", {1, 2, 3, 4, 5, 35}}, Axis{"accumulate", {false, true}});
}

TEST_P(PairHeadsInPlaceTest, ProductHasTheBitsOfTheStripForEveryTail) {
  const auto check = [&](int64_t keys, int64_t dv, bool scaled) {
    const ScatteredRows v(keys, dv, 4);
    const std::vector<float> words = Paired(v, dv);
    Matrix p(keys + 1, width(), width(), 5), alpha(1, width(), width(), 6);
    strip().pairs.pair_keys(p.data(), keys, p.data());
    const float* a = scaled ? alpha.data() : nullptr;
    Matrix want(dv, width(), width(), 7);
    Matrix have = want.Transposed();
    strip().product(table().rows->Paired(words.data(), dv), keys, p.data(), dv, a, want.data());
    in_place().product(v.in_place(scaled ? ScatteredRows::kAhead : 0), keys, p.data(), dv, a, have.data());
    ASSERT_TRUE(SameBits(have, want.Transposed()));
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 8, 17, 127, 128, 129, 300}},
              Axis{"dv", {1, 3, 4, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 130}},
              Axis{"scaled", {false, true}});
}

// Tests every tail of keys. The lists of addresses end before the rows that a kernel would fetch ahead.
TEST_P(PairHeadsInPlaceScores, AndProductsReadNothingBehindTheListOfRows) {
  const int64_t d = 4 * 2 * width();
  const Bf16Matrix q(width(), d, d, 1);
  const std::vector<float> panel = Panel(in_place(), q, d, width(), 1);
  for (const int64_t keys : {1, 2, 3, 4, 5, 16, 17}) {
    const ScatteredRows k(keys, d, 2);
    Matrix p(keys + 1, width(), width(), 5);
    strip().pairs.pair_keys(p.data(), keys, p.data());
    for (const int64_t ahead : {0, 1, 7, 8, 10, 11, 32}) {
      const std::span<const std::byte> addresses = k.ListFor(ahead);
      const test::GuardedBuffer list(addresses.size(), test::Place::kAtEnd);
      std::copy(addresses.begin(), addresses.end(), list.data());
      RowBlock rows = k.in_place(ahead);
      const Scored want = Score(in_place(), k.in_place(), keys, panel, d, false);
      Matrix product(width(), d, d, 7);
      in_place().product(k.in_place(), keys, p.data(), d, nullptr, product.data());
      rows.rows = reinterpret_cast<const void* const*>(list.data());
      const Scored have = Score(in_place(), rows, keys, panel, d, false);
      EXPECT_EQ(std::memcmp(have.s.values(), want.s.values(), static_cast<size_t>(keys * width()) * sizeof(float)), 0);
      Matrix listed(width(), d, d, 7);
      in_place().product(rows, keys, p.data(), d, nullptr, listed.data());
      EXPECT_EQ(std::memcmp(listed.values(), product.values(), static_cast<size_t>(width() * d) * sizeof(float)), 0);
    }
  }
}

TEST_P(PairHeadsInPlaceTest, ExactProductSkipsMaskedPairsAsTheStripDoes) {
  const auto check = [&](int64_t keys, int64_t dv) {
    ScatteredRows v(keys, dv, 8);
    v.Set(2, 0, kNan);
    v.Set(3, 1, kInf);
    const std::vector<float> words = Paired(v, dv);
    Matrix p(keys, width(), width(), 9), alpha(1, width(), width(), 10);
    for (int64_t lane = 0; lane < width(); lane += 2) p.at(2, lane) = p.at(3, lane) = kMaskedProbability;
    Matrix want(dv, width(), width(), 11);
    Matrix have = want.Transposed();
    strip().product_exact(table().rows->Paired(words.data(), dv), keys, p.data(), dv, alpha.data(), want.data());
    in_place().product_exact(v.in_place(), keys, p.data(), dv, alpha.data(), have.data());
    ASSERT_TRUE(SameBits(have, want.Transposed()));
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t lane = 0; lane < width(); ++lane) EXPECT_EQ(std::isfinite(have.at(lane, c)), lane % 2 == 0);
    }
  };
  ForEachCase(check, Axis{"keys", {4, 5}}, Axis{"dv", {2, 17, 40}});
}

}  // namespace
}  // namespace fa::core::kernels
