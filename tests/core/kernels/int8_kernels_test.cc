// Compares the int8 kernels of every line of kernels.inc with plain integer loops. Results must be exactly equal for
// every tail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/indexer/indexer_kernel_types.h"
#include "core/kernels/int8/int8_kernel_types.h"
#include "core/kernels/kernel_types.h"
#include "support/each_case.h"

namespace fa::core::kernels {
namespace {

using test::Axis;
using test::ForEachCase;

struct Line {
  const Int8Table* table;
  int strip;
};

std::vector<Line> Lines() {
  std::vector<Line> lines;
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    const Int8Table& table = Int8KernelsFor(isa);
    if (table.isa != isa) continue;  // this level uses the kernels of a lower level
    for (int s = 0; s < table.strip_count; ++s) lines.push_back({&table, s});
  }
  return lines;
}

/// Rows of random bytes, which include -128 and 127.
struct Bytes {
  Bytes(int64_t rows, int64_t columns, unsigned seed) : columns(columns) {
    std::mt19937 random(seed);
    values.resize(static_cast<size_t>(rows * columns));
    for (int8_t& value : values) value = static_cast<int8_t>(random());
    if (!values.empty()) values[0] = -128;
  }
  [[nodiscard]] const int8_t* row(int64_t r) const { return values.data() + r * columns; }
  [[nodiscard]] RowBlock block() const { return {values.data(), DType::kI8, columns}; }

  int64_t columns;
  std::vector<int8_t> values;
};

class Int8KernelsTest : public ::testing::TestWithParam<Line> {
 protected:
  [[nodiscard]] static const Int8Table& table() { return *GetParam().table; }
  [[nodiscard]] static const Int8Kernels& kernels() { return table().strips[GetParam().strip]; }
};

TEST_P(Int8KernelsTest, ScoresAreExact) {
  const int64_t width = kernels().width;
  const auto check = [&](int64_t d, int64_t keys, int64_t count, int sign) {
    const Bytes q(count, d, 1), k(keys, d, 2);
    std::vector<const void*> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(q.row(i));
    const int64_t words = table().Words(d);
    std::vector<uint32_t> panel(static_cast<size_t>(words * width)),
        packed(static_cast<size_t>(words * ((keys + 7) / 8 * 8)));
    std::vector<int32_t> start(static_cast<size_t>(keys));
    std::vector<float> s(static_cast<size_t>(keys * width)), max(static_cast<size_t>(width), -5);
    kernels().pack_queries({rows.data(), DType::kI8, count}, d, sign, panel.data());
    table().pack_keys(k.block(), keys, d, sign, packed.data(), start.data());
    kernels().scores(packed.data(), start.data(), keys, words, panel.data(), s.data(), max.data());
    for (int64_t lane = 0; lane < count; ++lane) {
      float largest = -5;
      for (int64_t j = 0; j < keys; ++j) {
        int64_t sum = 0;
        for (int64_t c = 0; c < d; ++c) sum += int64_t{q.row(lane)[c]} * k.row(j)[c];
        const auto want = static_cast<float>(sign * sum);
        ASSERT_EQ(s[static_cast<size_t>(j * width + lane)], want) << "d " << d << ", key " << j << ", lane " << lane;
        largest = std::max(largest, want);
      }
      ASSERT_EQ(max[static_cast<size_t>(lane)], largest);
    }
  };
  ForEachCase(check, Axis{"d", {1, 3, 4, 6, 16, 63, 64, 130}}, Axis{"keys", {1, 2, 5, 8, 11, 24}},
              Axis{"count", {int64_t{1}, width - 1, width}}, Axis{"sign", {1, -1, 0}});
}

TEST_P(Int8KernelsTest, ProductsAreExactAndPaddingDoesNotCount) {
  const int64_t width = kernels().width;
  const auto check = [&](int64_t dv, int64_t keys) {
    const Bytes v(keys, dv, 3);
    const int64_t stride = (keys + 7) / 8 * 8 / table().group * table().columns;
    std::vector<uint32_t> panel(static_cast<size_t>(table().PanelBlocks(dv) * stride), 0x7f7f7f7f);
    table().pack_values(v.block(), keys, dv, stride, panel.data());
    // The softmax makes the words of P from scores whose exponentials are 1, 1/2, 1/4 and 0.
    std::vector<float> s(static_cast<size_t>((keys + 3) / 4 * 4 * width), 0);
    std::vector<float> max(static_cast<size_t>(width), 0), sum(static_cast<size_t>(width));
    const auto score = [](int64_t j, int64_t lane) {
      const int64_t x = (j * 5 + lane) % 4;
      return x == 3 ? kMaskedScore : static_cast<float>(-x);
    };
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t lane = 0; lane < width; ++lane) s[static_cast<size_t>(j * width + lane)] = score(j, lane);
    }
    kernels().softmax(s.data(), keys, 1, 128, 128, max.data(), sum.data());
    std::vector<int32_t> o(static_cast<size_t>(dv * width), -1);
    kernels().product(panel.data(), stride, keys, reinterpret_cast<const uint32_t*>(s.data()), dv, o.data());
    for (int64_t lane = 0; lane < width; ++lane) {
      float total = 0;
      for (int64_t j = 0; j < keys; ++j) total += std::exp2(score(j, lane));
      ASSERT_EQ(sum[static_cast<size_t>(lane)], total);
      for (int64_t c = 0; c < dv; ++c) {
        int32_t want = 0;
        for (int64_t j = 0; j < keys; ++j) want += static_cast<int32_t>(128 * std::exp2(score(j, lane))) * v.row(j)[c];
        ASSERT_EQ(o[static_cast<size_t>(c * width + lane)], want) << "dv " << dv << ", keys " << keys;
      }
    }
  };
  ForEachCase(check, Axis{"dv", {1, 4, 6, 8, 9, 16, 23, 64}}, Axis{"keys", {1, 2, 3, 4, 7, 16, 33}});
}

TEST_P(Int8KernelsTest, SoftmaxRoundsToEvenSaturatesAndKeepsEmptyRowsEmpty) {
  const int64_t width = kernels().width;
  std::vector<float> s(static_cast<size_t>(4 * width), kMaskedScore), max(static_cast<size_t>(width), 0);
  std::vector<float> sum(static_cast<size_t>(width), 7);
  s[0] = 0;  // lane 0: P = 1, 1/2, 1/4, 0
  s[static_cast<size_t>(width)] = -1;
  s[static_cast<size_t>(2 * width)] = -2;
  max[1] = kMaskedScore;  // lane 1 has no key
  kernels().softmax(s.data(), 4, 1, 10, 9, max.data(), sum.data());
  EXPECT_EQ(sum[0], 1.75f);
  EXPECT_EQ(sum[1], 0);
  const auto* words = reinterpret_cast<const uint32_t*>(s.data());
  if (Includes(table().isa, Isa::kNeonDotprod)) {
    EXPECT_EQ(words[0], 0xf7u | 0xfbu << 8 | 0xfeu << 16);  // the signed bytes of -P8: -9, -5 and -2
    EXPECT_EQ(words[1], 0u);
  } else if (table().group == 4) {
    EXPECT_EQ(words[0], 9u | 5u << 8 | 2u << 16);  // the clamped and rounded probabilities min(10, 9), 5 and rint(2.5)
    EXPECT_EQ(words[1], 0u);
  } else {
    EXPECT_EQ(words[0], 9u | 5u << 16);
    EXPECT_EQ(words[width], 2u);
    EXPECT_EQ(words[1], 0u);
  }
}

// The bits are the same on every level, because all levels add and multiply in one order, without FMA.
TEST_P(Int8KernelsTest, SoftmaxHasTheBitsOfThePortableLevel) {
  const Int8Table& portable = Int8KernelsFor(Isa::kPortable);
  const Int8Kernels& other = portable.strips[portable.strip_count - 1];
  constexpr int64_t kKeys = 203;
  std::mt19937 random(5);
  std::vector<float> scores(static_cast<size_t>(kKeys));
  for (float& score : scores) score = -static_cast<float>(random() % 60000);
  scores[17] = 0;
  const auto sum_of = [&](const Int8Kernels& strip) {
    std::vector<float> s(static_cast<size_t>((kKeys + 3) / 4 * 4 * strip.width));
    for (int64_t j = 0; j < kKeys; ++j)
      std::fill_n(&s[static_cast<size_t>(j * strip.width)], strip.width, scores[static_cast<size_t>(j)]);
    std::vector<float> max(static_cast<size_t>(strip.width), 0), sum(static_cast<size_t>(strip.width));
    strip.softmax(s.data(), kKeys, 1.0f / 1500, 127, 127, max.data(), sum.data());
    return sum[0];
  };
  EXPECT_EQ(sum_of(kernels()), sum_of(other));
}

// Probabilities never exceed 1. So kernels do not clamp them when the quantization factor is at most the limit.
TEST_P(Int8KernelsTest, NoProbabilityPassesOne) {
  const int64_t width = kernels().width;
  for (int step = 0; step < 4000; ++step) {
    std::vector<float> s(static_cast<size_t>(4 * width)), max(static_cast<size_t>(width), 0), sum(max);
    // The scores lie just below 0 or just below -1/2, where the polynomial's argument changes its sign.
    for (int64_t lane = 0; lane < width; ++lane) {
      const auto distance = static_cast<float>(step * width + lane) * 0x1p-24f;
      s[static_cast<size_t>(lane)] = step % 2 == 0 ? -distance : -0.5f - distance;
    }
    kernels().softmax(s.data(), 1, 1, 127, 127, max.data(), sum.data());
    for (int64_t lane = 0; lane < width; ++lane) ASSERT_LE(sum[static_cast<size_t>(lane)], step % 2 == 0 ? 1 : 0.7072f);
  }
}

TEST_P(Int8KernelsTest, QuantizeRoundsToEvenAndSaturates) {
  const float x[] = {0.5f, 1.5f, -0.5f, -2.5f, 1e9f, -1e9f, std::numeric_limits<float>::quiet_NaN(), 63.5f, 3, 4, 5};
  const float scale = 1, offset = 0;
  std::vector<int8_t> y(std::size(x) + 1, 77);
  table().quantize(x, std::size(x), {.scale = &scale, .offset = &offset}, y.data());
  EXPECT_EQ(y, (std::vector<int8_t>{0, 2, 0, -2, 127, -128, -128, 64, 3, 4, 5, 77}));
  std::vector<uint16_t> scales(std::size(x), 0x4000);  // 0x4000 is 2 in bf16
  table().quantize(x, std::size(x), {.scale = scales.data(), .dtype = DType::kBF16, .per_column = true}, y.data());
  EXPECT_EQ(y, (std::vector<int8_t>{1, 3, -1, -5, 127, -128, -128, 127, 6, 8, 10, 77}));
}

TEST(Int8Registry, LevelsWithoutKernelsOfTheirOwnTakeTheNextLower) {
  EXPECT_EQ(Int8KernelsFor(Isa::kPortable).isa, Isa::kPortable);
  EXPECT_EQ(Int8KernelsFor(Isa::kAvx2).isa, Isa::kAvx2);
  EXPECT_EQ(Int8KernelsFor(Isa::kAvx512).isa, Isa::kAvx2);
  EXPECT_EQ(Int8KernelsFor(Isa::kAvx512Vnni).isa, Isa::kAvx512Vnni);
  EXPECT_EQ(Int8KernelsFor(Isa::kAvx512Bf16).isa, Isa::kAvx512Vnni);
  EXPECT_EQ(Int8KernelsFor(Isa::kNeon).isa, Isa::kNeon);
  EXPECT_EQ(Int8KernelsFor(Isa::kNeonDotprod).isa, Isa::kNeonDotprod);
  EXPECT_EQ(Int8KernelsFor(Isa::kNeonBf16).isa, Isa::kNeonBf16);
}

// avx512_vnni shares each of its kernels with avx512 or with avx512_bf16. For this reason tests leave avx512_vnni out
// under sanitizers (IsaLevels of tests/support/execution/contexts.h).
TEST(Int8Registry, VnniHasNoKernelThatItsNeighboursLack) {
  if (!Includes(DetectIsa(), Isa::kAvx512Bf16)) GTEST_SKIP() << "without avx512_bf16 no test leaves avx512_vnni out";
  EXPECT_EQ(&Int8KernelsFor(Isa::kAvx512Vnni), &Int8KernelsFor(Isa::kAvx512Bf16));
  EXPECT_EQ(&IndexerKernelsFor(Isa::kAvx512Vnni), &IndexerKernelsFor(Isa::kAvx512));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const KernelTable &table = Kernels(Isa::kAvx512Vnni, dtype), &below = Kernels(Isa::kAvx512, dtype),
                      &above = Kernels(Isa::kAvx512Bf16, dtype);
    EXPECT_EQ(table.strips, below.strips) << Name(dtype);
    EXPECT_EQ(table.rows, below.rows) << Name(dtype);
    ASSERT_EQ(table.few_count, above.few_count);
    for (int i = 0; i < table.few_count; ++i) {
      const FewRowLoops &loops = table.few[i].few_rows, &loops_below = below.few[i].few_rows;
      EXPECT_EQ(table.few[i].scores, below.few[i].scores) << Name(dtype);
      EXPECT_EQ(loops.attend, loops_below.attend) << Name(dtype);
      EXPECT_EQ(loops.attend_compressed, loops_below.attend_compressed) << Name(dtype);
      EXPECT_EQ(loops.attend_integers, above.few[i].few_rows.attend_integers) << Name(dtype);
      EXPECT_EQ(loops.attend_byte_floats, nullptr) << Name(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lines, Int8KernelsTest, ::testing::ValuesIn(Lines()),
                         [](const auto& info) { return std::string(info.param.table->strips[info.param.strip].name); });

}  // namespace
}  // namespace fa::core::kernels
