#ifndef FA_TESTS_CORE_KERNELS_TILE_FIXTURE_H_
#define FA_TESTS_CORE_KERNELS_TILE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/bf16_matrix.h"
#include "core/kernels/kernel_fixture.h"
#include "core/kernels/tiles_on_avx512.h"

namespace fa::core::kernels {

inline const KernelTable* tiles = nullptr;  ///< the table under test
inline const KernelTable& Tiles() { return *tiles; }

/// GetParam() is true for kernels with the vectors of AVX-512, and false for kernels with the vectors of the portable
/// level. The tile unit is emulated.
class TileKernels : public testing::TestWithParam<bool> {
 public:
  static std::string Name(const testing::TestParamInfo<bool>& info) { return info.param ? "Avx512" : "Portable"; }

 protected:
  void SetUp() override {
    tiles = GetParam() ? TilesOnAvx512() : &Kernels(kAmxEmulated, DType::kBF16);
    if (tiles == nullptr) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  }
};

/// Rows of bf16 numbers without gaps.
struct Rows {
  Rows(int64_t count, int64_t columns, uint32_t seed) : stride(columns) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    bits.resize(static_cast<size_t>(count * columns));
    for (uint16_t& value : bits) value = BitsOf(normal(random));
  }
  [[nodiscard]] RowBlock block() const { return {bits.data(), DType::kBF16, stride}; }
  [[nodiscard]] uint16_t at(int64_t r, int64_t c) const { return bits[static_cast<size_t>(r * stride + c)]; }
  [[nodiscard]] uint16_t& at(int64_t r, int64_t c) { return bits[static_cast<size_t>(r * stride + c)]; }
  int64_t stride;
  std::vector<uint16_t> bits;
};

inline std::vector<float> Paired(const Rows& rows, int64_t count) {
  const RowKernels& kernels = *Tiles().rows;
  std::vector<float> words(static_cast<size_t>(kernels.PairedFloats(count, rows.stride)), kNan);
  kernels.pair_rows(rows.block(), count, rows.stride, words.data(), rows.stride);
  return words;
}

inline std::vector<float> Panel(const StripKernels& kernels, const Rows& q, int64_t count) {
  std::vector<const void*> lanes;
  for (int64_t i = 0; i < count; ++i) lanes.push_back(q.bits.data() + i * q.stride);
  std::vector<float> panel(static_cast<size_t>(kernels.PanelRows(q.stride) * kernels.width));
  kernels.pack_queries({lanes.data(), DType::kBF16, count}, q.stride, 1, panel.data());
  return panel;
}

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_TILE_FIXTURE_H_
