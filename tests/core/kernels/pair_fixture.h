#ifndef FA_TESTS_CORE_KERNELS_PAIR_FIXTURE_H_
#define FA_TESTS_CORE_KERNELS_PAIR_FIXTURE_H_

#include <cstdint>
#include <vector>

#include "core/amx_emulated.h"
#include "core/kernels/bf16_matrix.h"
#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {

/// A test on one strip of bf16 pairs. GetParam() chooses the strip: 0 to 2 are strips of this CPU, 3 to 5 strips of
/// emulated instructions, 6 to 8 strips of the emulated tile unit. The emulated instructions run the source of the
/// VDPBF16PS kernels on any CPU. Tests that need several lanes use number 3, the widest of their strips.
class OnPairs : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!table().pairs() || GetParam() % kStrips >= table().strip_count) {
      GTEST_SKIP() << "this CPU executes no dot products of bf16, or its level has fewer strips";
    }
  }
  // Each kernel table has this many consecutive values of GetParam(), one per set of kernels.
  static constexpr int kStrips = 3;
  [[nodiscard]] static const KernelTable& table() {
    switch (GetParam() / kStrips) {
      case 0: return Kernels(DetectIsa(), DType::kBF16);
      case 1: return EmulatedPairs();
      default: return Kernels(kAmxEmulated, DType::kBF16);
    }
  }
  [[nodiscard]] static const StripKernels& kernels() { return table().strips[GetParam() % kStrips]; }
  [[nodiscard]] static const RowKernels& rows() { return *table().rows; }
  [[nodiscard]] static int64_t width() { return kernels().width; }

  [[nodiscard]] static std::vector<float> Panel(const Bf16Matrix& q, int64_t count, int64_t d, float multiplier) {
    std::vector<const void*> lanes(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) lanes[static_cast<size_t>(i)] = q.row(i);
    std::vector<float> panel(static_cast<size_t>(kernels().PanelRows(d) * width()));
    kernels().pack_queries({lanes.data(), DType::kBF16, count}, d, multiplier, panel.data());
    return panel;
  }
};

}  // namespace fa::core::kernels

#endif  // FA_TESTS_CORE_KERNELS_PAIR_FIXTURE_H_
