#include "fa/mask.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ops/bind/bind_call.h"

namespace fa::test {
namespace {

constexpr int64_t kSide = 2048;

std::vector<uint8_t> CompressedMask(int64_t mode) {
  const int64_t rows = mode == 6 ? 3072 : kSide;
  std::vector<uint8_t> mask(static_cast<size_t>(rows * kSide));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      mask[static_cast<size_t>(i * kSide + j)] = i < kSide ? j > i : j >= kSide / 2;
    }
  }
  return mask;
}

TensorView MaskView(const std::vector<uint8_t>& mask, DType dtype = DType::kU8) {
  return {mask.data(), dtype, {static_cast<int64_t>(mask.size()) / kSide, kSide}, {}};
}

TEST(Mask, ConstructorsKeepTheirArguments) {
  EXPECT_EQ(Mask::None().kind(), Mask::Kind::kNone);
  EXPECT_EQ(Mask::Causal().kind(), Mask::Kind::kCausal);
  EXPECT_EQ(Mask::CausalTopLeft().kind(), Mask::Kind::kCausalTopLeft);
  const Mask band = Mask::Band(-3, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(band.kind(), Mask::Kind::kBand);
  EXPECT_EQ(band.pre(), -3);
  EXPECT_EQ(band.next(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Mask::BandTopLeft(1, 2).kind(), Mask::Kind::kBandTopLeft);
  EXPECT_EQ(Mask::Prefix({4, 5}).prefix(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(Mask::Prefix({4, 5}).sparse_mode(), -1);
}

TEST(Mask, SparseModesAreTheRulesOfTheDevice) {
  using Kind = Mask::Kind;
  const Kind with_mask[] = {Kind::kBandTopLeft, Kind::kNone,           Kind::kCausalTopLeft,
                            Kind::kCausal,      Kind::kBand,           Kind::kPrefix,
                            Kind::kPrefix,      Kind::kCausalBandLast, Kind::kCausalBandFirst};
  for (int64_t mode = 0; mode <= 8; ++mode) {
    const auto mask = Mask::FromSparseMode(mode, 3, -1, {7}, /*dense_mask_given=*/true);
    ASSERT_TRUE(mask.ok());
    EXPECT_EQ(mask->kind(), with_mask[mode]) << mode;
    EXPECT_EQ(mask->sparse_mode(), mode);
    EXPECT_EQ(mask->prefix().size(), mode == 5 || mode == 6 ? 1u : 0u) << mode;
    const bool band = mode == 0 || mode == 4 || mode >= 7;
    EXPECT_EQ(mask->pre(), band ? 3 : Mask::kUnlimited) << mode;
    EXPECT_EQ(mask->next(), band ? -1 : Mask::kUnlimited) << mode;
  }
}

TEST(Mask, ModeZeroWithoutAMaskKeepsEverything) {
  const auto mask = Mask::FromSparseMode(0, 3, -100, {}, /*dense_mask_given=*/false);
  ASSERT_TRUE(mask.ok());
  EXPECT_EQ(mask->kind(), Mask::Kind::kNone);
  EXPECT_EQ(mask->sparse_mode(), 0);
}

TEST(Mask, UnknownModesAreRefused) {
  for (const int64_t mode : {int64_t{-1}, int64_t{9}, int64_t{99}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(Refused(Mask::FromSparseMode(mode, 0, 0, {}, false).status(),
                        "sparse_mode=" + std::to_string(mode) + ", want 0..8"));
  }
}

TEST(VerifyCompressedMask, AcceptsTheMaskOfEveryMode) {
  for (const int64_t mode : {2, 3, 4, 6, 7, 8}) {
    const auto mask = CompressedMask(mode);
    for (const DType dtype : {DType::kU8, DType::kBool, DType::kI8}) {
      const Status status = VerifyCompressedMask(MaskView(mask, dtype), mode);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(VerifyCompressedMask, NamesTheFirstWrongElement) {
  auto mask = CompressedMask(3);
  mask[5 * kSide + 7] = 0;
  mask[9 * kSide] = 1;
  EXPECT_TRUE(Refused(VerifyCompressedMask(MaskView(mask), 3), "dense_mask[5][7]=0, want 1"));
  mask[5 * kSide + 7] = 1;
  EXPECT_TRUE(Refused(VerifyCompressedMask(MaskView(mask), 3), "dense_mask[9][0]=1, want 0"));
}

TEST(VerifyCompressedMask, SeesEveryPlaceAroundTheDiagonalAndTheCorners) {
  auto mask = CompressedMask(6);
  const int64_t places[][2] = {{0, 0},       {0, 1},       {0, 2047},    {1023, 1023}, {1023, 1024},
                               {2046, 2047}, {2047, 2047}, {2047, 0},    {2048, 1023}, {2048, 1024},
                               {3071, 0},    {3071, 1023}, {3071, 1024}, {3071, 2047}};
  for (const auto& [i, j] : places) {
    uint8_t& element = mask[static_cast<size_t>(i * kSide + j)];
    element ^= 1;
    EXPECT_TRUE(Refused(VerifyCompressedMask(MaskView(mask), 6),
                        "dense_mask[" + std::to_string(i) + "][" + std::to_string(j) + "]="));
    element ^= 1;
  }
}

TEST(VerifyCompressedMask, AnyNonZeroByteDrops) {
  auto mask = CompressedMask(2);
  for (uint8_t& element : mask) element = element != 0 ? 255 : 0;
  EXPECT_TRUE(VerifyCompressedMask(MaskView(mask), 2).ok());
}

TEST(VerifyCompressedMask, FollowsStridesAndLeadingOnes) {
  const auto mask = CompressedMask(2);
  std::vector<uint8_t> wide(static_cast<size_t>(2 * kSide * (kSide + 5)), 9);
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      wide[static_cast<size_t>(i * 2 * (kSide + 5) + 2 * j)] = mask[static_cast<size_t>(i * kSide + j)];
    }
  }
  const TensorView view = {wide.data(), DType::kU8, {1, 1, kSide, kSide}, {0, 0, 2 * (kSide + 5), 2}};
  EXPECT_TRUE(VerifyCompressedMask(view, 2).ok()) << VerifyCompressedMask(view, 2).message();
}

TEST(VerifyCompressedMask, RefusesOtherTensorsAndModes) {
  const auto mask = CompressedMask(2);
  EXPECT_TRUE(Refused(VerifyCompressedMask(MaskView(mask), 6), "dense_mask.shape=[2048,2048], want [3072,2048]"));
  EXPECT_TRUE(Refused(VerifyCompressedMask({mask.data(), DType::kU8, {2, 1024, 2048}, {}}, 2), "want [2048,2048]"));
  EXPECT_TRUE(Refused(VerifyCompressedMask({nullptr, DType::kU8, {2048, 2048}, {}}, 2), "dense_mask: null data"));
  EXPECT_TRUE(
      Refused(VerifyCompressedMask(MaskView(mask, DType::kF16), 2), "dense_mask.dtype=f16, want u8, bool or i8"));
  for (const int64_t mode : {0, 1, 5, 9, -1}) {
    EXPECT_TRUE(Refused(VerifyCompressedMask(MaskView(mask), mode), "sparse_mode=" + std::to_string(mode)));
  }
}

}  // namespace
}  // namespace fa::test
