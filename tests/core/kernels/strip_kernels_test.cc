// Compares every set of strip kernels of the registry, on every level that this CPU has, with computations in double.
// The tests have all tails of keys and columns, misaligned rows, and lanes without a row. Rows are farther apart than
// they are long, with NaN between them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

class StripKernelsTest : public KernelTest {};

/// Writes a number that the type holds exactly.
void Store(float x, DType dtype, void* to) {
  const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  const Half half = static_cast<Half>(x);
  if (dtype == DType::kF32) std::memcpy(to, &x, sizeof x);
  if (dtype == DType::kBF16) std::memcpy(to, &upper, sizeof upper);
  if (dtype == DType::kF16) std::memcpy(to, &half, sizeof half);
}

/// Expects that a number of the type is `exact`, rounded once to nearest even.
void ExpectRounded(const void* at, DType dtype, float exact) {
  if (dtype == DType::kF32) {
    float got;
    std::memcpy(&got, at, sizeof got);
    ASSERT_EQ(got, exact);
  } else if (dtype == DType::kF16) {
    Half got;
    std::memcpy(&got, at, sizeof got);
    ASSERT_EQ(static_cast<float>(got), static_cast<float>(static_cast<Half>(exact)));
  } else {
    uint16_t got;
    std::memcpy(&got, at, sizeof got);
    const auto bits = std::bit_cast<uint32_t>(exact);
    const uint32_t rest = bits & 0xffffu, up = rest > 0x8000u || (rest == 0x8000u && (bits >> 16 & 1u));
    ASSERT_EQ(got, static_cast<uint16_t>((bits >> 16) + up));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, StripKernelsTest, testing::ValuesIn(Levels()), LevelName);

TEST_P(StripKernelsTest, NameAndIsaStateTheFacts) {
  EXPECT_NE(std::string(kernels().name).find("x" + std::to_string(width())), std::string::npos);
  EXPECT_NE(std::string(kernels().name).find(Name(kernels().isa)), std::string::npos);
}

TEST_P(StripKernelsTest, ScoresEqualTheDoubleProductForEveryTail) {
  const auto check = [&](int64_t keys, int64_t d, int64_t padding, bool accumulate) {
    Matrix k(keys, d, d + padding, 1, padding);
    Matrix panel(d, width(), width(), 2);
    Matrix s(keys, width(), width(), 3, padding), row_max = RowOf(width(), -kInf);
    const Matrix before = s;
    kernels().scores({k.data(), DType::kF32, k.stride()}, keys, panel.data(), d, accumulate, s.data(), row_max.data());
    ExpectSums(
        s, width(), d, d + 1, [&](int64_t key, int64_t lane) { return accumulate ? before.at(key, lane) : 0.0; },
        [&](int64_t key, int64_t lane, int64_t c) { return double{k.at(key, c)} * panel.at(c, lane); });
    ExpectRaised(row_max, -kInf, s, keys, width());
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 23, 24, 31, 32, 37}},
              Axis{"d", {1, 2, 3, 7, 8, 33, 64}}, Axis{"padding", {0, 3}}, Axis{"accumulate", {false, true}});
}

TEST_P(StripKernelsTest, ProductEqualsTheDoubleProductForEveryTail) {
  const auto check = [&](int64_t keys, int64_t dv, bool scaled) {
    Matrix v(keys, dv, dv + 5, 4, 1);
    Matrix p(keys, width(), width(), 5);
    Matrix o(dv, width(), width(), 6);
    Matrix alpha(1, width(), width(), 7);
    const Matrix before = o;
    kernels().product({v.data(), DType::kF32, v.stride()}, keys, p.data(), dv, scaled ? alpha.data() : nullptr,
                      o.data());
    ExpectSums(
        o, width(), keys, keys + 2,
        [&](int64_t c, int64_t lane) { return scaled ? double{alpha.at(0, lane)} * before.at(c, lane) : 0.0; },
        [&](int64_t c, int64_t lane, int64_t key) { return double{v.at(key, c)} * p.at(key, lane); });
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 8, 17, 40}},
              Axis{"dv", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 31, 33}},
              Axis{"scaled", {false, true}});
}

TEST_P(StripKernelsTest, ExactProductEqualsTheProductBitForBitWhenAllIsFinite) {
  // OpenBLAS chooses its own order of additions. The level of OpenBLAS has the exact product of the portable level.
  const bool blas = GetParam().table == &PortableBlasKernels();
  const StripKernels& fast = blas ? Kernels(Isa::kPortable).strips[GetParam().strip] : kernels();
  constexpr int64_t kKeys = 19, kDv = 21;
  Matrix v(kKeys, kDv, kDv, 8);
  Matrix p(kKeys, width(), width(), 9);
  Matrix a(kDv, width(), width(), 10);
  Matrix b = a;
  Matrix alpha(1, width(), width(), 11);
  fast.product({v.data(), DType::kF32, kDv}, kKeys, p.data(), kDv, alpha.data(), a.data());
  kernels().product_exact({v.data(), DType::kF32, kDv}, kKeys, p.data(), kDv, alpha.data(), b.data());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), sizeof(float) * static_cast<size_t>(kDv * width())), 0);
}

TEST_P(StripKernelsTest, ExactProductNeverMultipliesAMaskedPair) {
  constexpr int64_t kKeys = 5, kDv = 3;
  Matrix v(kKeys, kDv, kDv, 12);
  Matrix p(kKeys, width(), width(), 13);
  v.at(2, 0) = kNan;
  v.at(3, 1) = kInf;
  for (int64_t lane = 0; lane < width(); ++lane) {
    if (lane % 2 == 0) p.at(2, lane) = p.at(3, lane) = kMaskedProbability;
  }
  p.at(3, 1) = 0.0f;  // this pair is not masked, so 0 * inf is NaN
  Matrix o(kDv, width(), width(), 14);
  kernels().product_exact({v.data(), DType::kF32, kDv}, kKeys, p.data(), kDv, nullptr, o.data());
  for (int64_t lane = 0; lane < width(); ++lane) {
    for (int64_t c = 0; c < kDv; ++c) {
      if (lane % 2 == 0) {
        EXPECT_TRUE(std::isfinite(o.at(c, lane))) << c << " " << lane;
      } else if (c < 2) {
        EXPECT_FALSE(std::isfinite(o.at(c, lane))) << c << " " << lane;
      }
    }
  }
  EXPECT_TRUE(std::isnan(o.at(1, 1)));
}

TEST_P(StripKernelsTest, PackQueriesTransposesEveryTypeAndTail) {
  // Small integers are exact in every type.
  const auto value = [](int64_t row, int64_t c) { return static_cast<float>((row * 7 + c * 3) % 31 - 15); };
  std::vector<int64_t> counts;
  for (int64_t count = 1; count <= width(); count += count < 4 ? 1 : 3) counts.push_back(count);
  const auto check = [&](DType dtype, int64_t d, int64_t count) {
    std::vector<std::vector<uint8_t>> rows(static_cast<size_t>(count));
    std::vector<const void*> pointers;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<uint8_t>& row = rows[static_cast<size_t>(i)];
      row.resize(static_cast<size_t>(d) * SizeOf(dtype));
      for (int64_t c = 0; c < d; ++c) Store(value(i, c), dtype, &row[static_cast<size_t>(c) * SizeOf(dtype)]);
      pointers.push_back(row.data());
    }
    Matrix panel(d, width(), width(), 1);
    kernels().pack_queries({pointers.data(), dtype, count}, d, -2.0f, panel.data());
    for (int64_t i = 0; i < width(); ++i) {
      for (int64_t c = 0; c < d; ++c) {
        ASSERT_EQ(panel.at(c, i), i < count ? -2.0f * value(i, c) : 0.0f) << "lane " << i << " column " << c;
      }
    }
    ASSERT_TRUE(panel.Intact());
  };
  ForEachCase(check, Axis{"type", kFloatTypes}, Axis{"d", {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 40}},
              Axis{"rows", counts});
}

TEST_P(StripKernelsTest, WriteOutputRoundsOnceAndWritesNothingElse) {
  const auto check = [&](int64_t dv, int64_t count, DType dtype) {
    Matrix o(dv, width(), width(), 30);
    Matrix multiplier(1, width(), width(), 31);
    std::vector<int32_t> zero(static_cast<size_t>(width()), 0);
    zero[0] = 1;
    o.at(0, 0) = kNan;
    const auto element = static_cast<int64_t>(SizeOf(dtype));
    constexpr uint8_t kCanary = 0xa5;
    std::vector<uint8_t> out(static_cast<size_t>(count * (dv + 2) * element), kCanary);
    std::vector<void*> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(out.data() + (i * (dv + 2) + 1) * element);
    kernels().write_output(o.data(), dv, multiplier.data(), zero.data(), rows.data(), dtype, count);
    for (int64_t i = 0; i < count; ++i) {
      const auto* row = static_cast<const uint8_t*>(rows[static_cast<size_t>(i)]);
      ASSERT_EQ(row[-element], kCanary);
      ASSERT_EQ(row[dv * element], kCanary);
      for (int64_t c = 0; c < dv; ++c) {
        ExpectRounded(row + c * element, dtype, i == 0 ? 0.0f : o.at(c, i) * multiplier.at(0, i));
      }
    }
  };
  ForEachCase(check, Axis{"dv", {1, 3, 4, 7, 8, 15, 16, 17, 33}}, Axis{"rows", {int64_t{1}, width() / 2, width()}},
              Axis{"type", kFloatTypes});
}

TEST_P(StripKernelsTest, MasksSelect) {
  for (const int64_t keys : {1, 5, 16, 31, 32, 33, 71}) {
    const Matrix before(keys, width(), width(), 40);
    std::vector<int32_t> begin(static_cast<size_t>(width())), end(begin.size());
    std::mt19937 random(41);
    // Each row of the mask has exactly as many bytes as there are keys. The last lane has no row.
    const int64_t count = width() - 1;
    std::vector<std::vector<uint8_t>> bytes(static_cast<size_t>(count),
                                            std::vector<uint8_t>(static_cast<size_t>(keys)));
    std::vector<const void*> rows;
    for (size_t lane = 0; lane < begin.size(); ++lane) {
      begin[lane] = static_cast<int32_t>(random() % (static_cast<uint32_t>(keys) + 1));
      end[lane] = static_cast<int32_t>(random() % (static_cast<uint32_t>(keys) + 1));
    }
    for (std::vector<uint8_t>& row : bytes) {
      for (uint8_t& byte : row) byte = random() % 3 == 0 ? static_cast<uint8_t>(1u << random() % 8) : 0;
      rows.push_back(row.data());
    }
    bytes[0][0] = 2;
    std::vector<uint32_t> words(static_cast<size_t>((keys + 31) / 32 * width()), ~0u);
    Matrix interval = before;
    kernels().passes.mask_interval(interval.data(), keys, begin.data(), end.data(), kMaskedProbability);
    for (const bool raises : {false, true}) {
      Matrix masked = before, row_max = RowOf(width(), -0.5f);
      ASSERT_TRUE(kernels().passes.drop_words({rows.data(), DType::kU8, count}, keys, words.data()));
      kernels().passes.mask_words(masked.data(), keys, words.data(), -kInf, raises ? row_max.data() : nullptr);
      for (int64_t r = 0; r < keys; ++r) {
        for (int64_t lane = 0; lane < width(); ++lane) {
          const auto i = static_cast<size_t>(lane);
          const bool drops = lane < count && bytes[i][static_cast<size_t>(r)] != 0;
          ASSERT_EQ(masked.at(r, lane), drops ? -kInf : before.at(r, lane));
          const bool inside = r >= begin[i] && r < end[i];
          ASSERT_EQ(interval.at(r, lane), inside ? before.at(r, lane) : 0.0f);
          ASSERT_TRUE(inside || std::signbit(interval.at(r, lane)));
        }
      }
      ExpectRaised(row_max, -0.5f, masked, raises ? keys : 0, width());
      ASSERT_TRUE(masked.Intact() && interval.Intact() && row_max.Intact());
    }
    for (std::vector<uint8_t>& row : bytes) std::fill(row.begin(), row.end(), uint8_t{0});
    Matrix unmasked = before, row_max = RowOf(width(), -0.5f);
    ASSERT_FALSE(kernels().passes.drop_words({rows.data(), DType::kU8, count}, keys, words.data()));
    for (const uint32_t word : words) ASSERT_EQ(word, 0u);
    kernels().passes.mask_words(unmasked.data(), keys, words.data(), -kInf, row_max.data());
    ExpectRaised(row_max, -0.5f, before, keys, width());
    for (int64_t r = 0; r < keys; ++r) {
      for (int64_t lane = 0; lane < width(); ++lane) ASSERT_EQ(unmasked.at(r, lane), before.at(r, lane));
    }
  }
}

TEST_P(StripKernelsTest, SoftcapOfAScoreIsTheSameInAnyCompany) {
  // At 0.625 of the cap, tanh changes from a polynomial to a formula with exponentials.
  constexpr float kCap = 50.0f, kEdge = 31.25f;
  for (const float edge : {kEdge, -kEdge, std::nextafter(kEdge, 0.0f), std::nextafter(kEdge, 50.0f)}) {
    Matrix alone(1, width(), width(), 52);
    for (int64_t lane = 0; lane < width(); ++lane) alone.at(0, lane) = 0;
    alone.at(0, 1) = edge;
    Matrix beside = alone;
    beside.at(0, 0) = 200.0f;
    kernels().passes.scale_scores(alone.data(), 1, 1.0f, kCap, nullptr);
    kernels().passes.scale_scores(beside.data(), 1, 1.0f, kCap, nullptr);
    ASSERT_EQ(std::bit_cast<uint32_t>(alone.at(0, 1)), std::bit_cast<uint32_t>(beside.at(0, 1))) << edge;
  }
}

TEST_P(StripKernelsTest, SoftcapOfZeroIsZeroWhateverTheScale) {
  Matrix s(2, width(), width(), 53);
  for (int64_t lane = 0; lane < width(); ++lane) s.at(0, lane) = 0;
  kernels().passes.scale_scores(s.data(), 2, 1e30f, 1e-9f, nullptr);  // the quotient 1e30 / 1e-9 overflows f32
  for (int64_t lane = 0; lane < width(); ++lane) {
    ASSERT_EQ(s.at(0, lane), 0.0f);
    ASSERT_EQ(std::fabs(s.at(1, lane)), 1e-9f);
  }
}

TEST_P(StripKernelsTest, BiasAndSoftcapFollowTheirFormulas) {
  for (const int64_t keys : {1, 3, 8, 15, 16, 17, 33}) {
    const Matrix before(keys, width(), width(), 50);
    Matrix bias(width(), keys, keys + 1, 51);
    std::vector<const void*> rows;
    const int64_t count = width() - 1;
    for (int64_t i = 0; i < count; ++i) rows.push_back(&bias.at(i, 0));
    Matrix biased = before, capped = before, scaled = before;
    Matrix added = before, max_of_biased = RowOf(width(), -kInf), max_of_capped = max_of_biased;
    kernels().passes.add_bias(biased.data(), keys, 0.5f, -2.0f, {rows.data(), DType::kF32, count},
                              max_of_biased.data());
    kernels().passes.add_bias(added.data(), keys, 1.0f, 1.0f, {rows.data(), DType::kF32, count}, nullptr);
    kernels().passes.scale_scores(capped.data(), keys, 3.0f, 1.5f, max_of_capped.data());
    kernels().passes.scale_scores(scaled.data(), keys, 3.0f, 0.0f, nullptr);
    ExpectRaised(max_of_biased, -kInf, biased, keys, count);
    ExpectRaised(max_of_capped, -kInf, capped, keys, width());
    // The bits of a score far below the cap do not depend on whether the other scores are far below the cap.
    constexpr float kFar = 40.0f;
    Matrix far = before, mixed = before, max_of_far = RowOf(width(), -kInf);
    mixed.at(keys / 2, width() / 2) = 30.0f;
    kernels().passes.scale_scores(far.data(), keys, 3.0f, kFar, max_of_far.data());
    kernels().passes.scale_scores(mixed.data(), keys, 3.0f, kFar, nullptr);
    ExpectRaised(max_of_far, -kInf, far, keys, width());
    ASSERT_NEAR(mixed.at(keys / 2, width() / 2), kFar * std::tanh(90.0 / kFar), 6 * kEps * kFar);
    for (int64_t r = 0; r < keys; ++r) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        const double x = before.at(r, lane);
        if (lane < count) {
          const double want = 0.5 * x - 2.0 * bias.at(lane, r);
          ASSERT_NEAR(biased.at(r, lane), want, 2 * kEps * (std::fabs(x) + 2 * std::fabs(bias.at(lane, r))));
          ASSERT_EQ(added.at(r, lane), before.at(r, lane) + bias.at(lane, r));
        }
        const double far_want = kFar * std::tanh(3.0 * x / kFar);
        ASSERT_NEAR(far.at(r, lane), far_want, 6 * kEps * std::fabs(far_want)) << x;
        if (r != keys / 2 || lane != width() / 2) {
          ASSERT_EQ(mixed.at(r, lane), far.at(r, lane)) << x;
        }
        // tanh is off by 3 ulp; each factor and each product is rounded once more.
        const double want = 1.5 * std::tanh(3.0 * x / 1.5);
        ASSERT_NEAR(capped.at(r, lane), want, 6 * kEps * std::fabs(want)) << x;
        ASSERT_EQ(scaled.at(r, lane), 3.0f * before.at(r, lane));
      }
    }
  }
}

TEST_P(StripKernelsTest, SlopesFollowTheirFormula) {
  std::vector<float> slope(static_cast<size_t>(width()));
  std::vector<int32_t> distance(slope.size());
  for (size_t i = 0; i < slope.size(); ++i) {
    slope[i] = 0.25f * static_cast<float>(i + 1);
    distance[i] = static_cast<int32_t>(i) * 3 - 20;
  }
  const auto check = [&](int64_t keys, bool square_root) {
    const Matrix before(keys, width(), width(), 50);
    Matrix sloped = before, max_of_sloped = RowOf(width(), -kInf);
    kernels().passes.add_slopes(sloped.data(), keys, 0.5f, slope.data(), distance.data(), square_root,
                                max_of_sloped.data());
    ExpectRaised(max_of_sloped, -kInf, sloped, keys, width());
    for (int64_t r = 0; r < keys; ++r) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        const auto i = static_cast<size_t>(lane);
        double far = std::abs(distance[i] + static_cast<int>(r));
        if (square_root) far = std::sqrt(far);
        const double x = 0.5 * before.at(r, lane), bend = slope[i] * far;
        ASSERT_NEAR(sloped.at(r, lane), x - bend, 2 * kEps * (std::fabs(x) + bend));
      }
    }
  };
  ForEachCase(check, Axis{"keys", {1, 3, 8, 15, 16, 17, 33}}, Axis{"square_root", {false, true}});
}

TEST_P(StripKernelsTest, BiasTakesRowsOfEveryTypeAtEveryDistance) {
  const auto check = [&](DType dtype, int64_t distance, int64_t keys, int64_t count) {
    const auto element = static_cast<int64_t>(SizeOf(dtype));
    std::vector<std::byte> memory(static_cast<size_t>(((width() - 1) * distance + 200) * element));
    std::vector<const void*> rows;
    // These numbers are exact in every type, and so are their sums.
    const auto value = [&](int64_t lane, int64_t key) {
      return static_cast<float>((lane * (distance == 0 ? 0 : 7) + key * 5) % 31 - 15) * 0.25f;
    };
    Matrix s(keys, width(), width(), 53);
    for (int64_t lane = 0; lane < width(); ++lane) {
      std::byte* row = memory.data() + lane * distance * element;
      rows.push_back(row);
      for (int64_t key = 0; key < keys; ++key) {
        Store(value(lane, key), dtype, row + key * element);
        s.at(key, lane) = static_cast<float>(key - lane);
      }
    }
    Matrix scaled = s, most = RowOf(width(), -kInf);
    kernels().passes.add_bias(s.data(), keys, 1, 1, {rows.data(), dtype, count}, most.data());
    kernels().passes.add_bias(scaled.data(), keys, 2, -1, {rows.data(), dtype, count}, nullptr);
    ExpectRaised(most, -kInf, s, keys, count);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < count; ++lane) {
        const float x = static_cast<float>(key - lane), y = value(lane, key);
        ASSERT_EQ(s.at(key, lane), x + y) << key << " " << lane;
        ASSERT_EQ(scaled.at(key, lane), 2 * x - y) << key << " " << lane;
      }
    }
    ASSERT_TRUE(s.Intact() && scaled.Intact());
  };
  for (const DType dtype : kFloatTypes) {
    const int64_t in_a_line = 2048 / static_cast<int64_t>(SizeOf(dtype));
    // Rows begin inside a cache line, or all lanes share one row. All, some or no lanes of a vector are in use.
    ForEachCase(check, Axis{"type", {dtype}}, Axis<int64_t>{"distance", {0, in_a_line, in_a_line + 8, 200}},
                Axis{"keys", {1, 15, 33, 63, 64, 65, 100, 128, 160}},
                Axis{"rows", {width(), width() - 1, width() / 2, int64_t{1}}});
  }
}

TEST_P(StripKernelsTest, StatesAreAddedLaneByLane) {
  constexpr int64_t kDv = 19;
  Matrix o(kDv, width(), width(), 31), from(kDv, width(), width(), 32);
  Matrix own(1, width(), width(), 33), other(1, width(), width(), 34);
  const Matrix before = o;
  kernels().add_state(from.data(), other.data(), own.data(), kDv, o.data());
  for (int64_t c = 0; c < kDv; ++c) {
    for (int64_t lane = 0; lane < width(); ++lane) {
      const double a = static_cast<double>(own.at(0, lane)) * before.at(c, lane);
      const double b = static_cast<double>(other.at(0, lane)) * from.at(c, lane);
      ASSERT_NEAR(o.at(c, lane), a + b, 2 * kEps * (std::fabs(a) + std::fabs(b)));
    }
  }
  EXPECT_TRUE(o.Intact());
}

TEST(Registry, EveryLevelIsAtLeastPortableAndStripsGoFromWideToNarrow) {
  for (const Isa isa : AllIsas()) {
    const KernelTable& table = Kernels(isa);
    EXPECT_TRUE(Includes(isa, table.isa)) << Name(isa);
    ASSERT_GE(table.strip_count, 1);
    for (int s = 1; s < table.strip_count; ++s) EXPECT_LT(table.strips[s].width, table.strips[s - 1].width);
    EXPECT_EQ(&table.ForRows(1), &table.narrowest());
    EXPECT_EQ(&table.ForRows(table.narrowest().width + 1), &table.strips[table.strip_count - 2]);
    EXPECT_EQ(&table.ForRows(100000), &table.widest());
    // The kernels that the table chooses for these rows never need more strips than the widest kernels alone would.
    for (int64_t rows = 1; rows < 5 * table.widest().width; ++rows) {
      int64_t strips = 0;
      for (int64_t left = rows; left > 0; left -= table.ForRows(left).width) ++strips;
      ASSERT_EQ(strips, (rows + table.widest().width - 1) / table.widest().width) << rows;
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
