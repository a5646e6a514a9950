#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check/element.h"
#include "check/forward_row.h"
#include "check/kept_rule.h"
#include "reference/half.h"
#include "reference/mask.h"
#include "support/each_case.h"

namespace fa::check {
namespace {

double Loaded(DType dtype, uint16_t bits) { return LoadElement(&bits, dtype, 0); }

uint16_t Stored(DType dtype, float value) {
  uint16_t bits = 0;
  StoreElement(&bits, dtype, 0, value);
  return bits;
}

TEST(Element, All16BitPatternsHaveTheirValueAndComeBack) {
  for (const auto& [dtype, format] :
       {std::pair{DType::kF16, reference::Format::kF16}, std::pair{DType::kBF16, reference::Format::kBF16}}) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const double want = reference::Decode16(format, static_cast<uint16_t>(bits));
      const double got = Loaded(dtype, static_cast<uint16_t>(bits));
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << bits;
      } else {
        ASSERT_EQ(got, want) << bits;
        ASSERT_EQ(Stored(dtype, static_cast<float>(want)), bits);
      }
    }
  }
}

TEST(Element, RoundsMidpointsOfNeighboursToEven) {
  for (const auto& [dtype, format] :
       {std::pair{DType::kF16, reference::Format::kF16}, std::pair{DType::kBF16, reference::Format::kBF16}}) {
    const uint32_t infinity = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double low = reference::Decode16(format, static_cast<uint16_t>(bits));
      const double high = reference::Decode16(format, static_cast<uint16_t>(bits + 1));
      const auto middle = static_cast<float>((low + high) / 2);
      const float below = std::nextafter(middle, 0.0F), above = std::nextafter(middle, INFINITY);
      ASSERT_EQ(Stored(dtype, middle), bits + (bits & 1));
      if (below > low) {
        ASSERT_EQ(Stored(dtype, below), bits);
      }
      if (above < high) {
        ASSERT_EQ(Stored(dtype, -above), 0x8000 | (bits + 1));
      }
    }
  }
}

TEST(KeptRule, AgreesWithTheReferenceForAllSmallShapes) {
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  struct Rule {
    Mask mask;
    reference::MaskRule want;
  };
  std::vector<Rule> rules = {{Mask::None(), {.mode = 1}},
                             {Mask::CausalTopLeft(), {.mode = 2}},
                             {Mask::Causal(), {.mode = 3}},
                             {Mask::Prefix({3, 1}), {.mode = 5, .prefix = {3, 1}}}};
  for (const int64_t pre : {int64_t{-1}, int64_t{0}, int64_t{2}, kLarge}) {
    for (const int64_t next : {int64_t{-2}, int64_t{0}, int64_t{1}, kLarge}) {
      rules.push_back({Mask::Band(pre, next), {.mode = 4, .pre = pre, .next = next}});
      rules.push_back({Mask::BandTopLeft(pre, next), {.mode = 0, .band = true, .pre = pre, .next = next}});
    }
  }
  for (const int64_t next : {-2, -1, 0, 1}) {
    rules.push_back({*Mask::FromSparseMode(7, kLarge, next, {}, false), {.mode = 7, .pre = kLarge, .next = next}});
    rules.push_back({*Mask::FromSparseMode(8, kLarge, next, {}, false), {.mode = 8, .pre = kLarge, .next = next}});
  }
  const auto check = [](int64_t sq, int64_t sk, const Rule& rule) {
    const reference::Lengths lengths = {.sq = {sq, sq}, .sk = {sk, sk}};
    for (int64_t n = 0; n < 2 * sq * sk; ++n) {
      const int64_t b = n / (sq * sk), i = n / sk % sq, j = n % sk;
      const SequenceFacts facts = {.index = b, .sq = sq, .sk = sk, .first_non_empty = b == 0, .last_non_empty = b == 1};
      ASSERT_EQ(Keeps(rule.mask, facts, i, j), reference::RuleKeeps(rule.want, lengths, b, i, j))
          << "mode " << rule.want.mode << " pre " << rule.want.pre << " next " << rule.want.next << " b " << b << " i "
          << i << " j " << j;
    }
  };
  test::ForEachCase(check, test::Axis{"sq", test::FromTo(1, 6)}, test::Axis{"sk", test::FromTo(1, 6)},
                    test::Axis{"rule", rules});
}

TEST(ForwardRow, IsTheMeanOfTheKeptValuesWhenScoresAreEqual) {
  const std::vector<float> q = {0, 0}, k = {1, 2, 3, 4, 5, 6}, v = {1, 10, 100};
  const ForwardRow row = ComputeForwardRow({.q = {q.data(), DType::kF32, 0, 2, 2},
                                            .k = {k.data(), DType::kF32, 0, 2, 2},
                                            .v = {v.data(), DType::kF32, 0, 1, 1},
                                            .row = 0,
                                            .sk = 3,
                                            .scale = 1,
                                            .keeps = [](int64_t key) { return key != 1; }});
  EXPECT_DOUBLE_EQ(row.out[0], 50.5);
  EXPECT_LT(row.bound[0], 1e-4);
  EXPECT_GT(row.bound[0], 0);
}

TEST(ForwardRow, NeverLooksAtMaskedValuesAndGivesZeroWithoutKeys) {
  const std::vector<float> q = {1}, k = {1}, v = {NAN};
  const ForwardRow row = ComputeForwardRow({.q = {q.data(), DType::kF32, 0, 1, 1},
                                            .k = {k.data(), DType::kF32, 0, 1, 1},
                                            .v = {v.data(), DType::kF32, 0, 1, 1},
                                            .row = 0,
                                            .sk = 1,
                                            .scale = 1,
                                            .keeps = [](int64_t) { return false; }});
  EXPECT_EQ(row.out[0], 0);
  EXPECT_EQ(row.bound[0], 0);
}

}  // namespace
}  // namespace fa::check
