// Tests products that skip masked pairs. A masked pair contributes exactly nothing, even if its value is NaN or inf.
// The plain product gives the same bits if the pair's value and weight are 0. In all other pairs, NaN and inf reach the
// result.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

/// Strip kernels and the row kernels of their level.
struct Products {
  const StripKernels* strip;
  const RowKernels* rows;
  [[nodiscard]] bool pairs() const { return strip->operands == Operands::kBF16Pairs; }
  [[nodiscard]] bool by_row() const { return strip->state_by_row || strip->any_dtype; }
};

/// Returns the emulated kernel sets and the sets of this CPU, without the kernels on OpenBLAS. The order in which
/// OpenBLAS adds is not known.
std::vector<Products> AllProducts() {
  std::vector<Products> all;
  std::vector<const KernelTable*> tables = {&EmulatedPairs(), &Kernels(kAmxEmulated, DType::kBF16)};
  if (const KernelTable& pairs = Kernels(DetectIsa(), DType::kBF16); pairs.pairs()) tables.push_back(&pairs);
  for (const Level& level : Levels()) {
    if (level.strip == 0 && level.table != &PortableBlasKernels()) tables.push_back(level.table);
  }
  for (const KernelTable* table : tables) {
    for (int i = 0; i < table->strip_count; ++i) {
      all.push_back({&table->strips[i], table->rows});
      if (table->row_state != nullptr) all.push_back({&table->row_state[i], table->rows});
    }
    for (int i = 0; i < table->few_count && !table->pairs(); ++i) all.push_back({&table->few[i], table->rows});
  }
  return all;
}

/// Rounds x to bf16 towards zero.
float RoundedToBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0xffff0000u;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Returns the bits of values that bf16 holds exactly.
std::vector<uint16_t> Bf16Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    bits.push_back(static_cast<uint16_t>(word >> 16));
  }
  return bits;
}

/// `rows` rows of `columns` bf16 numbers. Some of the numbers are not finite in `poisoned`, and are 0 in `clean`.
struct PoisonedRows {
  PoisonedRows(int64_t row_count, int64_t column_count, std::mt19937& random) : rows(row_count), columns(column_count) {
    constexpr float kPoison[] = {kNan, kInf, -kInf};
    std::normal_distribution<float> normal;
    for (int64_t x = 0; x < rows * columns; ++x) {
      const bool bad = random() % 9 == 0;
      clean.push_back(bad ? 0.0F : RoundedToBf16(normal(random)));
      poisoned.push_back(bad ? kPoison[random() % 3] : clean.back());
    }
  }
  [[nodiscard]] bool Bad(int64_t row, int64_t column) const {
    return !std::isfinite(poisoned[static_cast<size_t>(row * columns + column)]);
  }

  int64_t rows, columns;
  std::vector<float> clean, poisoned;
};

/// The weights of `count` pairs. A third of the pairs is masked. In `plain` their weights are 0, and in `marked` they
/// are kMaskedProbability.
struct MaskedWeights {
  MaskedWeights(int64_t count, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int64_t x = 0; x < count; ++x) {
      const bool masked = random() % 3 == 0;
      plain.push_back(masked ? 0.0F : normal(random));
      marked.push_back(masked ? kMaskedProbability : plain.back());
    }
  }
  [[nodiscard]] bool Masked(int64_t x) const { return EqualBits(marked[static_cast<size_t>(x)], kMaskedProbability); }

  std::vector<float> plain, marked;
};

/// Counts the elements that agree: `spoilt` counts elements that see a poisoned value, and `same` the others.
struct Seen {
  /// Succeeds if the element is not finite where it sees a poisoned value, and elsewhere has the bits of `plain`.
  [[nodiscard]] testing::AssertionResult Agree(float exact, float plain, bool sees) {
    ++(sees ? spoilt : same);
    if (std::isfinite(exact) != sees && (sees || EqualBits(exact, plain))) return testing::AssertionSuccess();
    return testing::AssertionFailure() << exact << " and " << plain << (sees ? ", which sees poison" : "");
  }
  int64_t same = 0, spoilt = 0;
};

class ExactProducts : public testing::TestWithParam<Products> {
 protected:
  [[nodiscard]] static const StripKernels& kernels() { return *GetParam().strip; }
  [[nodiscard]] static const RowKernels& row_kernels() { return *GetParam().rows; }
  [[nodiscard]] static bool pairs() { return GetParam().pairs(); }

  /// Computes o = alpha o + V^T P from an o of 0.5, and returns o.
  [[nodiscard]] static std::vector<float> Product(bool exact, const std::vector<float>& v, std::vector<float> p,
                                                  int64_t keys, int64_t dv, const float* alpha) {
    std::vector<float> o(static_cast<size_t>(kernels().rows * dv), 0.5F), words;
    RowBlock block{v.data(), DType::kF32, dv};
    const auto bits = Bf16Bits(v);
    if (pairs()) {
      words.resize(static_cast<size_t>(row_kernels().PairedFloats(keys, dv)));
      row_kernels().pair_rows({bits.data(), DType::kBF16, dv}, keys, dv, words.data(), dv);
      block = row_kernels().Paired(words.data(), dv);
      if (!exact) kernels().pairs.pair_keys(p.data(), keys, p.data());
    }
    (exact ? kernels().product_exact : kernels().product)(block, keys, p.data(), dv, alpha, o.data());
    return o;
  }

  /// Computes c += A^T B over `count` rows from a c of -0.25, and returns c.
  [[nodiscard]] static std::vector<float> Outer(bool exact, const std::vector<float>& b, const std::vector<float>& a,
                                                int64_t keys, int64_t count, int64_t columns) {
    const int64_t width = kernels().width, tile = keys * width, strips = (count + width - 1) / width;
    std::vector<float> values(a), c(static_cast<size_t>(keys * columns), -0.25F);
    std::vector<float> panel(static_cast<size_t>((count + 1) * row_kernels().PanelColumns(columns)));
    const auto bits = Bf16Bits(b);
    if (pairs()) {
      for (int64_t strip = 0; strip < strips; ++strip) {
        kernels().pairs.pair_lanes(a.data() + strip * tile, keys, values.data() + strip * tile);
      }
      row_kernels().pack_rows({bits.data(), DType::kBF16, columns}, count, columns, panel.data());
    } else {
      row_kernels().pack_rows({b.data(), DType::kF32, columns}, count, columns, panel.data());
    }
    (exact ? row_kernels().outer_exact : row_kernels().outer)({.a = values.data(),
                                                               .strip_stride = tile,
                                                               .width = width,
                                                               .rows = count,
                                                               .b = panel.data(),
                                                               .b_rows = count,
                                                               .keys = keys,
                                                               .columns = columns,
                                                               .c = c.data(),
                                                               .c_stride = columns,
                                                               .accumulate = true});
    return c;
  }
};

TEST_P(ExactProducts, OfKeysHaveTheBitsOfPlainOnes) {
  std::mt19937 random(1);
  const int64_t width = kernels().width, rows = kernels().rows;
  std::vector<float> alpha(static_cast<size_t>(width));
  for (float& x : alpha) x = std::uniform_real_distribution<float>(0.5F, 1)(random);
  Seen seen;
  // If no factor changes the old sums, a tile unit has a loop of its own for columns in whole blocks of 32.
  const std::vector<float> ones(static_cast<size_t>(width), 1);
  const float* const kFactors[] = {nullptr, ones.data(), alpha.data()};
  const auto check = [&](int64_t keys, int64_t dv, int64_t factors) {
    const float* factor = kFactors[factors];
    const PoisonedRows v(keys, dv, random);
    const MaskedWeights p(keys * width, random);
    const std::vector<float> plain = Product(false, v.clean, p.plain, keys, dv, factor);
    const std::vector<float> exact = Product(true, v.poisoned, p.marked, keys, dv, factor);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < dv; ++c) {
        bool sees = false;
        for (int64_t key = 0; key < keys; ++key) sees = sees || (v.Bad(key, c) && !p.Masked(key * width + row));
        const auto at = static_cast<size_t>(GetParam().by_row() ? row * dv + c : c * width + row);
        ASSERT_TRUE(seen.Agree(exact[at], plain[at], sees)) << "row " << row << ", " << c;
      }
    }
  };
  ForEachCase(check, Axis{"keys", {1, 2, 7, 40, 64}}, Axis{"dv", {1, 6, 19, 64}}, Axis{"factors", {0, 1, 2}});
  EXPECT_GT(seen.same, 50);
  EXPECT_GT(seen.spoilt, 50);
}

TEST_P(ExactProducts, OfRowsHaveTheBitsOfPlainOnes) {
  if (GetParam().by_row()) return;  // their outer product is that of the kernels with state along the lanes
  std::mt19937 random(2);
  const int64_t width = kernels().width;
  Seen seen;
  const auto check = [&](int64_t keys, int64_t columns, int64_t count) {
    const int64_t strips = (count + width - 1) / width;
    const PoisonedRows b(count, columns, random);
    const MaskedWeights a(strips * keys * width, random);
    const std::vector<float> plain = Outer(false, b.clean, a.plain, keys, count, columns);
    const std::vector<float> exact = Outer(true, b.poisoned, a.marked, keys, count, columns);
    for (int64_t key = 0; key < keys; ++key) {
      for (int64_t c = 0; c < columns; ++c) {
        bool sees = false;
        for (int64_t row = 0; row < count; ++row) {
          sees = sees || (b.Bad(row, c) && !a.Masked((row / width * keys + key) * width + row % width));
        }
        const auto at = static_cast<size_t>(key * columns + c);
        ASSERT_TRUE(seen.Agree(exact[at], plain[at], sees)) << "key " << key << ", column " << c;
      }
    }
  };
  ForEachCase(check, Axis{"keys", {1, 9}}, Axis{"columns", {3, 37}},
              Axis{"rows", {int64_t{1}, width - 1, 2 * width + 3}});
  EXPECT_GT(seen.same, 50);
  EXPECT_GT(seen.spoilt, 50);
}

INSTANTIATE_TEST_SUITE_P(Registry, ExactProducts, testing::ValuesIn(AllProducts()), [](const auto& info) {
  return std::string(info.param.strip->name) + (info.param.strip->state_by_row ? "_by_row" : "");
});

}  // namespace
}  // namespace fa::core::kernels
