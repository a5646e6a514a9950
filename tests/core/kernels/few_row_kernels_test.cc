// Compares the kernels for few rows on every line of the registry with computations in double.

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

struct FewLine {
  const KernelTable* table;
  const StripKernels* kernels;
};

std::vector<FewLine> FewLines() {
  std::vector<FewLine> lines;
  std::set<const KernelTable*> seen;
  for (const Level& level : Levels()) {
    if (!seen.insert(level.table).second) continue;
    for (int i = 0; i < level.table->few_count; ++i) lines.push_back({level.table, &level.table->few[i]});
  }
  return lines;
}

/// Random rows that the type holds exactly, with NaN between and around them.
struct TypedRows {
  TypedRows(DType dtype, int64_t rows, int64_t columns, int64_t stride, uint32_t seed)
      : dtype(dtype), columns(columns), stride(stride) {
    const size_t size = static_cast<size_t>(rows * stride + 64);
    halves.assign(size, 0x7fff);  // 0x7fff is NaN as f16 and as bf16
    floats.assign(size, kNan);
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> eighths(-16, 16);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) Set(r, c, static_cast<float>(eighths(random)) / 8);
    }
  }
  void Set(int64_t row, int64_t column, float x) {
    const auto at = static_cast<size_t>(row * stride + column);
    floats[at] = x;
    if (dtype == DType::kBF16) halves[at] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    if (dtype == DType::kF16) halves[at] = ToF16(x);
  }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    return floats[static_cast<size_t>(row * stride + column)];
  }
  [[nodiscard]] RowBlock block() const {
    return {dtype == DType::kF32 ? static_cast<const void*>(floats.data()) : halves.data(), dtype, stride};
  }

  /// Returns the f16 bits of x, which is NaN, 0, or a normal number that f16 holds exactly.
  static uint16_t ToF16(float x) {
    if (std::isnan(x)) return 0x7e00;
    if (x == 0) return 0;
    int exponent = 0;
    const float fraction = std::frexp(std::fabs(x), &exponent);  // frexp returns a fraction in [1/2, 1)
    const int bits = ((exponent + 14) << 10) + static_cast<int>((2 * fraction - 1) * 1024);
    return static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | bits);
  }

  DType dtype;
  int64_t columns, stride;
  std::vector<uint16_t> halves;
  std::vector<float> floats;
};

class FewRowKernelsTest : public testing::TestWithParam<FewLine> {
 protected:
  static const StripKernels& kernels() { return *GetParam().kernels; }
  static int64_t rows() { return kernels().rows; }
  static int64_t width() { return kernels().width; }
};

INSTANTIATE_TEST_SUITE_P(Registry, FewRowKernelsTest, testing::ValuesIn(FewLines()),
                         [](const auto& info) { return std::string(info.param.kernels->name); });

TEST_P(FewRowKernelsTest, TheTableFindsTheFewestRowsThatSuffice) {
  const KernelTable& table = *GetParam().table;
  EXPECT_EQ(table.ForFewRows(rows()), &kernels());
  EXPECT_EQ(table.ForFewRows(table.few[table.few_count - 1].rows + 1), nullptr);
  EXPECT_LE(rows(), width());
  EXPECT_EQ(width(), table.narrowest().width);
  EXPECT_TRUE(kernels().any_dtype);
}

TEST_P(FewRowKernelsTest, ScoresOfPackedQueriesEqualTheDoubleProduct) {
  const auto check = [&](DType dtype, int64_t keys, int64_t d, bool accumulate) {
    const TypedRows k(dtype, keys, d, d + 5, 1), q(dtype, rows(), d, d + 2, 2);
    std::vector<const void*> q_rows;
    for (int64_t row = 0; row < rows(); ++row) {
      q_rows.push_back(static_cast<const char*>(q.block().data) + row * q.stride * static_cast<int64_t>(SizeOf(dtype)));
    }
    std::vector<float> panel(static_cast<size_t>(d * width() + 64), kNan);
    kernels().pack_queries({q_rows.data(), dtype, rows()}, d, 0.5f, panel.data());
    Matrix s(keys, width(), width(), 3), row_max = RowOf(width(), -kInf);
    const Matrix before = s;
    kernels().scores(k.block(), keys, panel.data(), d, accumulate, s.data(), row_max.data());
    ExpectSums(
        s, rows(), d, d + 1, [&](int64_t key, int64_t row) { return accumulate ? before.at(key, row) : 0.0; },
        [&](int64_t key, int64_t row, int64_t c) { return 0.5 * k.at(key, c) * q.at(row, c); });
    ExpectRaised(row_max, -kInf, s, keys, rows());
  };
  ForEachCase(check, Axis{"type", kFloatTypes}, Axis{"keys", {1, 2, 3, 7, 15, 16, 17, 33}},
              Axis{"d", {1, 3, 8, 15, 16, 17, 40, 128}}, Axis{"accumulate", {false, true}});
}

TEST_P(FewRowKernelsTest, ProductEqualsTheDoubleProduct) {
  const auto check = [&](DType dtype, int64_t keys, int64_t dv, bool scaled, bool exact) {
    const TypedRows v(dtype, keys, dv, dv + 3, 4);
    Matrix p(keys, width(), width(), 5), alpha(1, width(), width(), 6);
    Matrix o(rows(), dv, dv, 7);
    const Matrix before = o;
    (exact ? kernels().product_exact : kernels().product)(v.block(), keys, p.data(), dv,
                                                          scaled ? alpha.data() : nullptr, o.data());
    ExpectSums(
        o, dv, keys, keys + 2,
        [&](int64_t row, int64_t c) { return scaled ? double{alpha.at(0, row)} * before.at(row, c) : 0.0; },
        [&](int64_t row, int64_t c, int64_t key) { return v.at(key, c) * p.at(key, row); });
  };
  ForEachCase(check, Axis{"type", kFloatTypes}, Axis{"keys", {1, 2, 9, 40}}, Axis{"dv", {1, 7, 16, 31, 64, 130, 200}},
              Axis{"scaled", {false, true}}, Axis{"exact", {false, true}});
}

TEST_P(FewRowKernelsTest, ExactProductSkipsMaskedPairsOnly) {
  constexpr int64_t kKeys = 3, kDv = 20;
  TypedRows v(DType::kF32, kKeys, kDv, kDv, 8);
  v.Set(1, 2, kNan);
  Matrix p(kKeys, width(), width(), 9);
  for (int64_t row = 0; row < rows(); ++row) p.at(1, row) = row == 0 ? kMaskedProbability : 0.0f;
  Matrix o(rows(), kDv, kDv, 10);
  kernels().product_exact(v.block(), kKeys, p.data(), kDv, nullptr, o.data());
  EXPECT_TRUE(std::isfinite(o.at(0, 2)));
  // This pair is not masked, so 0 * NaN is NaN in every row.
  for (int64_t row = 1; row < rows(); ++row) EXPECT_TRUE(std::isnan(o.at(row, 2)));
}

TEST_P(FewRowKernelsTest, StatesAreAddedAndWrittenInTheirOwnShape) {
  for (const int64_t dv : {1, 16, 37}) {
    Matrix o(rows(), dv, dv, 11), from(rows(), dv, dv, 12);
    Matrix own(1, width(), width(), 13), other(1, width(), width(), 14);
    const Matrix before = o;
    kernels().add_state(from.data(), other.data(), own.data(), dv, o.data());
    Matrix out(rows(), dv, dv + 1, 15);
    std::vector<void*> targets;
    for (int64_t row = 0; row < rows(); ++row) targets.push_back(&out.at(row, 0));
    std::vector<float> multiplier(static_cast<size_t>(width()), 2.0f);
    std::vector<int32_t> zero(static_cast<size_t>(width()), 0);
    zero[0] = 1;
    kernels().write_output(o.data(), dv, multiplier.data(), zero.data(), targets.data(), DType::kF32, rows());
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t c = 0; c < dv; ++c) {
        const double a = static_cast<double>(own.at(0, row)) * before.at(row, c);
        const double b = static_cast<double>(other.at(0, row)) * from.at(row, c);
        ASSERT_NEAR(o.at(row, c), a + b, 2 * kEps * (std::fabs(a) + std::fabs(b)));
        ASSERT_EQ(out.at(row, c), row == 0 ? 0.0f : 2 * o.at(row, c));
      }
    }
    ASSERT_TRUE(o.Intact() && out.Intact());
  }
}

// A row has the same bits, however many rows its kernel computes at once.
TEST_P(FewRowKernelsTest, ARowHasTheBitsItHasAlone) {
  constexpr int64_t kKeys = 37, kD = 72;
  const KernelTable& table = *GetParam().table;
  const StripKernels& alone = table.few[0];
  ASSERT_EQ(alone.rows, 1);
  const TypedRows k(DType::kF32, kKeys, kD, kD, 16);
  Matrix q(rows(), kD, kD, 17);
  std::vector<float> all(static_cast<size_t>(kKeys * width()));
  kernels().scores(k.block(), kKeys, q.data(), kD, false, all.data(), nullptr);
  std::vector<float> o_all(static_cast<size_t>(rows() * kD));
  kernels().product(k.block(), kKeys, all.data(), kD, nullptr, o_all.data());
  for (int64_t row = 0; row < rows(); ++row) {
    std::vector<float> one(static_cast<size_t>(kKeys * width())), o_one(static_cast<size_t>(kD));
    alone.scores(k.block(), kKeys, &q.at(row, 0), kD, false, one.data(), nullptr);
    for (int64_t key = 0; key < kKeys; ++key) {
      ASSERT_EQ(one[static_cast<size_t>(key * width())], all[static_cast<size_t>(key * width() + row)]);
    }
    alone.product(k.block(), kKeys, one.data(), kD, nullptr, o_one.data());
    ASSERT_EQ(std::memcmp(o_one.data(), o_all.data() + row * kD, sizeof(float) * kD), 0);
  }
}

}  // namespace
}  // namespace fa::core::kernels
