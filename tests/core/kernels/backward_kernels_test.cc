// Compares the backward kernels of every line of the registry with computations in double.

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

class BackwardKernelsTest : public KernelTest {
 protected:
  /// Packs the matrix into the panel that `outer` reads. Expects that no element after the panel is written.
  [[nodiscard]] std::vector<float> Panel(Matrix& b) const {
    const auto size = static_cast<size_t>(b.rows() * row_kernels().PanelColumns(b.columns()));
    std::vector<float> panel(size + 64, kNan);
    row_kernels().pack_rows({b.data(), DType::kF32, b.stride()}, b.rows(), b.columns(), panel.data());
    for (size_t i = size; i < panel.size(); ++i) EXPECT_TRUE(std::isnan(panel[i]));
    return panel;
  }
};

INSTANTIATE_TEST_SUITE_P(Registry, BackwardKernelsTest, testing::ValuesIn(Levels()), LevelName);

/// A matrix a(key, row) as the kernels store it: [strip][key][lane]. A strip has one row per lane. Lanes without a row
/// are NaN.
struct StripTiles {
  StripTiles(int64_t width, int64_t rows, int64_t keys, uint32_t seed) : width(width), keys(keys) {
    strips = (rows + width - 1) / width;
    values.assign(static_cast<size_t>(strips * keys * width), kNan);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t key = 0; key < keys; ++key) at(key, row) = normal(random);
    }
  }
  float& at(int64_t key, int64_t row) {
    return values[static_cast<size_t>((row / width * keys + key) * width + row % width)];
  }
  int64_t width, keys, strips = 0;
  std::vector<float> values;
};

TEST_P(BackwardKernelsTest, OuterProductEqualsDoubleForEveryTail) {
  const auto check = [&](int64_t keys, int64_t columns, int64_t rows, bool accumulate) {
    if (rows == 0) return;
    StripTiles a(width(), rows, keys, 1);
    Matrix b(rows, columns, columns + 3, 2, 1);
    const std::vector<float> panel = Panel(b);
    Matrix c(keys, columns, columns + 1, 3);
    const Matrix before = c;
    row_kernels().outer({.a = a.values.data(),
                         .strip_stride = keys * width(),
                         .width = width(),
                         .rows = rows,
                         .b = panel.data(),
                         .b_rows = rows,
                         .keys = keys,
                         .columns = columns,
                         .c = c.data(),
                         .c_stride = c.stride(),
                         .accumulate = accumulate});
    ExpectSums(
        c, columns, rows, rows + 1,
        [&](int64_t key, int64_t column) { return accumulate ? before.at(key, column) : 0.0; },
        [&](int64_t key, int64_t column, int64_t row) { return double{a.at(key, row)} * b.at(row, column); });
  };
  ForEachCase(check, Axis{"keys", {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 19}},
              Axis{"columns", {1, 3, 4, 8, 15, 16, 17, 31, 32, 33, 48, 67, 80, 144}},
              Axis{"rows", {int64_t{1}, width() - 1, width(), 2 * width() + 3}}, Axis{"accumulate", {false, true}});
}

TEST_P(BackwardKernelsTest, OuterProductHasOneOrderOfAdditionsHoweverRowsAreGrouped) {
  const int64_t rows = 3 * width(), keys = 11, columns = 37;
  StripTiles a(width(), rows, keys, 4);
  Matrix b(rows, columns, columns, 5);
  const std::vector<float> panel = Panel(b);
  Matrix once(keys, columns, columns, 6);
  Matrix apart = once;
  OuterArgs args{.a = a.values.data(),
                 .strip_stride = keys * width(),
                 .width = width(),
                 .rows = rows,
                 .b = panel.data(),
                 .b_rows = rows,
                 .keys = keys,
                 .columns = columns,
                 .c = once.data(),
                 .c_stride = columns,
                 .accumulate = true};
  row_kernels().outer(args);
  args.c = apart.data();
  args.rows = width();
  for (int64_t strip = 0; strip < 3; ++strip) {
    args.a = a.values.data() + strip * keys * width();
    args.b_first = strip * width();
    row_kernels().outer(args);
  }
  EXPECT_EQ(std::memcmp(once.data(), apart.data(), sizeof(float) * static_cast<size_t>(keys * columns)), 0);
}

TEST_P(BackwardKernelsTest, ExactOuterProductSkipsMaskedPairsOnly) {
  const int64_t rows = width() + 2, keys = 3, columns = 21;
  StripTiles a(width(), rows, keys, 7);
  Matrix b(rows, columns, columns, 8);
  b.at(1, 4) = kNan;
  b.at(2, 5) = kInf;
  a.at(0, 1) = a.at(0, 2) = kMaskedProbability;
  a.at(2, 2) = 0.0f;
  const std::vector<float> panel = Panel(b);
  Matrix c(keys, columns, columns, 9);
  row_kernels().outer_exact({.a = a.values.data(),
                             .strip_stride = keys * width(),
                             .width = width(),
                             .rows = rows,
                             .b = panel.data(),
                             .b_rows = rows,
                             .keys = keys,
                             .columns = columns,
                             .c = c.data(),
                             .c_stride = columns,
                             .accumulate = false});
  for (int64_t column = 0; column < columns; ++column) EXPECT_TRUE(std::isfinite(c.at(0, column))) << column;
  EXPECT_TRUE(std::isnan(c.at(1, 4)));
  EXPECT_FALSE(std::isfinite(c.at(1, 5)));
  EXPECT_TRUE(std::isnan(c.at(2, 5)));  // a pair that is not masked gives 0 * inf, which is NaN
}

TEST_P(BackwardKernelsTest, SoftmaxEpilogueGivesProbabilitiesAndTheirGradients) {
  for (const int64_t keys : {1, 2, 7, 16}) {
    constexpr float kFactor = 0.5f;
    Matrix s(keys, width(), width(), 10), dp(keys, width(), width(), 11);
    Matrix shift(1, width(), width(), 12), delta(1, width(), width(), 13);
    s.at(0, 0) = kMaskedScore;
    dp.at(0, 0) = kNan;     // no kernel may read this NaN, because its pair is masked
    shift.at(0, 1) = kInf;  // an infinite shift stands for a row without keys, or for a lane without a row
    const Matrix scores = s, gradients = dp;
    kernels().backward_softmax(s.data(), dp.data(), keys, kFactor, shift.data(), delta.data());
    EXPECT_EQ(s.at(0, 0), 0.0f);
    EXPECT_EQ(dp.at(0, 0), 0.0f);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        if (key == 0 && lane == 0) continue;
        if (lane == 1) {
          ASSERT_EQ(s.at(key, lane), 0.0f);
          ASSERT_EQ(dp.at(key, lane), 0.0f);
          ASSERT_FALSE(std::signbit(dp.at(key, lane)));  // a result of -0 would mark a masked pair
          continue;
        }
        const double p = std::exp2(kFactor * static_cast<double>(scores.at(key, lane)) - shift.at(0, lane));
        ASSERT_NEAR(s.at(key, lane), p, 16 * kEps * p);
        const double difference = static_cast<double>(gradients.at(key, lane)) - delta.at(0, lane);
        const double magnitude = std::fabs(gradients.at(key, lane)) + std::fabs(delta.at(0, lane));
        ASSERT_NEAR(dp.at(key, lane), p * difference, 18 * kEps * p * magnitude);
      }
    }
    ASSERT_TRUE(s.Intact() && dp.Intact());
  }
}

TEST_P(BackwardKernelsTest, SoftmaxEpilogueWithDropoutSelectsGradientsBeforeAndProbabilitiesAfter) {
  for (const int64_t keys : {1, 7, 32, 33, 65}) {
    constexpr float kFactor = 0.5f, kMultiplier = 1.25f;
    Matrix s(keys, width(), width(), 14), dp(keys, width(), width(), 15);
    Matrix shift(1, width(), width(), 16), delta(1, width(), width(), 17);
    s.at(0, 0) = kMaskedScore;
    dp.at(0, 0) = kNan;
    std::vector<uint32_t> words(static_cast<size_t>(CeilDiv(keys, kKeepBits) * width()));
    std::mt19937 random(18);
    for (uint32_t& word : words) word = random();
    const auto kept = [&](int64_t key, int64_t lane) {
      return (words[static_cast<size_t>(key / kKeepBits * width() + lane)] >> key % kKeepBits & 1u) != 0;
    };
    Matrix p = s, ds = dp;
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        if (!std::isnan(ds.at(key, lane))) ds.at(key, lane) = kept(key, lane) ? kMultiplier * ds.at(key, lane) : 0.0f;
      }
    }
    kernels().backward_softmax(p.data(), ds.data(), keys, kFactor, shift.data(), delta.data());
    kernels().backward_softmax_dropout(s.data(), dp.data(), keys, kFactor, shift.data(), delta.data(),
                                       {words.data(), kMultiplier});
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        ASSERT_EQ(dp.at(key, lane), ds.at(key, lane)) << key << " " << lane;
        ASSERT_EQ(s.at(key, lane), kept(key, lane) ? kMultiplier * p.at(key, lane) : 0.0f) << key << " " << lane;
      }
    }
    ASSERT_TRUE(s.Intact() && dp.Intact());
  }
}

TEST_P(BackwardKernelsTest, SoftcapGradientFollowsItsFormula) {
  for (const int64_t keys : {1, 3, 8, 17}) {
    const Matrix ds(keys, width(), width(), 20);
    Matrix capped(keys, width(), width(), 21);
    constexpr float kCap = 4.0f;
    Matrix through = ds;
    kernels().passes.softcap_gradient(through.data(), capped.data(), keys, kCap);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t lane = 0; lane < width(); ++lane) {
        const double t = capped.at(key, lane) / static_cast<double>(kCap);
        ASSERT_NEAR(through.at(key, lane), ds.at(key, lane) * (1 - t * t), 8 * kEps * std::fabs(ds.at(key, lane)));
      }
    }
  }
}

TEST_P(BackwardKernelsTest, SlopeGradientIsTheSumOverDistances) {
  std::vector<int32_t> distance(static_cast<size_t>(width()));
  for (size_t i = 0; i < distance.size(); ++i) distance[i] = static_cast<int32_t>(i) - 5;
  const auto check = [&](int64_t keys, bool square_root) {
    const Matrix ds(keys, width(), width(), 20);
    Matrix sum(1, width(), width(), 22);
    const Matrix before = sum;
    kernels().passes.slope_gradient(ds.values(), keys, distance.data(), square_root, sum.data());
    ExpectSums(
        sum, width(), keys, keys + 2, [&](int64_t, int64_t lane) { return double{before.at(0, lane)}; },
        [&](int64_t, int64_t lane, int64_t key) {
          const double far = std::abs(distance[static_cast<size_t>(lane)] + static_cast<int>(key));
          return (square_root ? std::sqrt(far) : far) * ds.at(key, lane);
        });
  };
  ForEachCase(check, Axis{"keys", {1, 3, 8, 17}}, Axis{"square_root", {false, true}});
}

TEST_P(BackwardKernelsTest, BiasGradientScalesOrAddsTheRowsInUse) {
  const auto check = [&](int64_t keys, bool accumulate) {
    const Matrix ds(keys, width(), width(), 20);
    const int64_t count = width() - 1;
    Matrix bias(width(), keys, keys + 2, 23);
    const Matrix before = bias;
    std::vector<void*> rows;
    for (int64_t i = 0; i < width(); ++i) rows.push_back(&bias.at(i, 0));
    kernels().passes.bias_gradient(ds.values(), keys, -0.5f, accumulate, rows.data(), DType::kF32, count);
    for (int64_t lane = 0; lane < width(); ++lane) {
      for (int64_t key = 0; key < keys; ++key) {
        float want = -0.5f * ds.at(key, lane);
        if (accumulate) want += before.at(lane, key);
        if (lane >= count) want = before.at(lane, key);
        ASSERT_EQ(bias.at(lane, key), want) << lane << " " << key;
      }
    }
    ASSERT_TRUE(bias.Intact());
  };
  ForEachCase(check, Axis{"keys", {1, 3, 8, 17}}, Axis{"accumulate", {false, true}});
}

/// A row of `dtype` numbers, followed by NaN, and the same numbers as floats.
struct TypedRow {
  TypedRow(const RowKernels& kernels, DType of, int64_t n, uint32_t seed)
      : dtype(of), bytes(static_cast<size_t>(n + 64) * SizeOf(of), 0xff), numbers(static_cast<size_t>(n)) {
    const Matrix from(1, n, n, seed);
    kernels.narrow(from.values(), n, 1, n, 1, {bytes.data(), dtype, n});
    kernels.widen({bytes.data(), dtype, n}, 1, n, numbers.data(), n);
  }
  DType dtype;
  std::vector<uint8_t> bytes;
  std::vector<float> numbers;
};

TEST_P(BackwardKernelsTest, DotTakesEveryPairOfTypesAndTail) {
  const auto check = [&](int64_t n, DType a_type, DType b_type) {
    const TypedRow a(row_kernels(), a_type, n, 30), b(row_kernels(), b_type, n, 31);
    double want = 0, magnitude = 0;
    for (size_t i = 0; i < a.numbers.size(); ++i) {
      want += static_cast<double>(a.numbers[i]) * b.numbers[i];
      magnitude += std::fabs(static_cast<double>(a.numbers[i]) * b.numbers[i]);
    }
    EXPECT_NEAR(row_kernels().dot(a.bytes.data(), a_type, b.bytes.data(), b_type, n), want,
                kEps * static_cast<double>(n + 4) * magnitude);
  };
  ForEachCase(check, Axis{"n", {1, 2, 7, 8, 15, 16, 17, 33, 64, 96, 129, 200, 257, 515}}, Axis{"a", kFloatTypes},
              Axis{"b", kFloatTypes});
}

TEST_P(BackwardKernelsTest, NarrowTakesEveryTypeAndTail) {
  const auto check = [&](int64_t n, DType dtype) {
    const auto element = static_cast<int64_t>(SizeOf(dtype));
    Matrix from(3, n, n + 1, 32);
    std::vector<uint8_t> out(static_cast<size_t>(3 * (n + 2) * element), 0xa5);
    row_kernels().narrow(from.data(), from.stride(), 3, n, 2.0f, {out.data() + element, dtype, n + 2});
    std::vector<float> back(static_cast<size_t>(3 * n));
    row_kernels().widen({out.data() + element, dtype, n + 2}, 3, n, back.data(), n);
    const double rounding = dtype == DType::kF32 ? 0.0 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        const double exact = 2.0 * from.at(r, c);
        // The bound is half an ulp of the type. The term 2^-25 is for f16 subnormals, which are multiples of 2^-24.
        ASSERT_NEAR(back[static_cast<size_t>(r * n + c)], exact, rounding * std::fabs(exact) + 0x1p-25);
      }
      ASSERT_EQ(out[static_cast<size_t>(r * (n + 2) * element)], 0xa5);
      ASSERT_EQ(out[static_cast<size_t>((r * (n + 2) + n + 1) * element)], 0xa5);
    }
  };
  ForEachCase(check, Axis{"n", {1, 2, 7, 8, 15, 16, 17, 33, 64, 129}}, Axis{"type", kFloatTypes});
}

}  // namespace
}  // namespace fa::core::kernels
