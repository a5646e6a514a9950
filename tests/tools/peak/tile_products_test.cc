// Tests the loop that measures the rate of the tile unit (AMX). The loop runs on the emulation and, if this CPU has a
// tile unit, also on the unit.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/levels/kernel_level.h"
#include "core/kernels/tile_use.h"
#include "core/machine/cpu.h"
#include "peak/peak_rate.h"
#include "peak/random_operands.h"

namespace fa::bench {
namespace {

using core::kernels::tile_use;
using core::kernels::TileScope;
using core::kernels::TileUse;

namespace emulated {
#include "core/kernels/vec/vec_amx_emulated.h"
#include "peak/tile_products.inc"
}  // namespace emulated

struct Bf16Tiles {
  uint16_t a[2][16][32], b[2][16][32];  // b[k / 2][2 n + k % 2] is element (k, n) of B
};

TEST(TileProducts, EveryIterationAddsTheProductsOfTheOperands) {
  constexpr int kIterations = 3;
  Bf16Tiles tiles;
  FillNormalBf16({tiles.a[0][0], sizeof tiles / sizeof(uint16_t)});
  emulated::TileOperands operands;
  std::memcpy(operands.a, tiles.a, sizeof operands.a);
  std::memcpy(operands.b, tiles.b, sizeof operands.b);
  emulated::TileSums sums;
  emulated::RunTileProducts<DType::kBF16>(operands, kIterations, sums);
  const auto number = [](uint16_t bits) { return double{std::bit_cast<float>(uint32_t{bits} << 16)}; };
  for (int tile = 0; tile < 4; ++tile) {
    float got[16][16];
    std::memcpy(got, sums.c[tile], sizeof got);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        double want = 0, magnitude = 0;
        for (int k = 0; k < 32; ++k) {
          const double term = number(tiles.a[tile / 2][m][k]) * number(tiles.b[tile % 2][k / 2][2 * n + k % 2]);
          want += kIterations * term;
          magnitude += kIterations * std::fabs(term);
        }
        constexpr double kRoundings = kIterations * 18;  // each of two chains has 16 additions, and two more follow
        ASSERT_NEAR(got[m][n], want, kRoundings * std::numeric_limits<float>::epsilon() * magnitude) << tile;
      }
    }
  }
}

/// Calls kernels of the level before and after `measure`, which uses the tile unit on the same thread. The results
/// before and after must be equal.
void ExpectKernelsToFindTheirTilesAround(Isa isa, const std::function<void()>& measure) {
  constexpr int64_t kKeys = 32, kHeadSize = 64;
  const core::kernels::StripKernels& kernels = core::kernels::Kernels(isa, DType::kBF16).widest();
  const auto rows = std::make_unique<uint16_t[]>(static_cast<size_t>(kKeys * kHeadSize));
  FillNormalBf16({rows.get(), static_cast<size_t>(kKeys * kHeadSize)});
  std::vector<float> panel(static_cast<size_t>(kernels.PanelRows(kHeadSize) * kernels.width), 1.5f);
  std::vector<float> max(static_cast<size_t>(kernels.width));
  const auto scores = [&] {
    std::vector<float> s(static_cast<size_t>(kKeys * kernels.width));
    kernels.scores({rows.get(), DType::kBF16, kHeadSize}, kKeys, panel.data(), kHeadSize, false, s.data(), max.data());
    return s;
  };
  const TileScope scope;
  const std::vector<float> before = scores();
  ASSERT_NE(tile_use, TileUse::kNone) << "the kernel leaves the unit configured for the next one";
  measure();
  EXPECT_EQ(tile_use, TileUse::kNone) << "what was released is known to be";
  EXPECT_EQ(scores(), before);
}

TEST(TileProducts, AKernelAfterTheLoopFindsItsTiles) {
  ExpectKernelsToFindTheirTilesAround(core::kAmxEmulated, [] {
    emulated::TileOperands operands = {};
    emulated::TileSums sums;
    emulated::RunTileProducts<DType::kBF16>(operands, 1, sums);
    emulated::RunTileProducts<DType::kI8>(operands, 1, sums);
  });
}

#if defined(__x86_64__)
TEST(TileProducts, AKernelAfterAMeasurementFindsItsTilesOnThisCpu) {
  if (!Includes(DetectIsa(), Isa::kAvx512Amx)) GTEST_SKIP() << "this CPU has no tile unit";
  for (const DType dtype : {DType::kBF16, DType::kI8}) {
    ExpectKernelsToFindTheirTilesAround(Isa::kAvx512Amx,
                                        [dtype] { EXPECT_GT(PeakRate(1, Isa::kAvx512Amx, dtype).Gflops(1e-4), 0); });
  }
}
#endif

}  // namespace
}  // namespace fa::bench
