#include <gtest/gtest.h>

#include <cstddef>

#include "fa/context.h"
#include "fa/tensor.h"
#include "peak/peak_rate.h"
#include "peak/read_bandwidth.h"

namespace fa::bench {
namespace {

// No core reaches these rates. A loop that seems to reach them was removed by the compiler.
constexpr double kTooManyGflops = 1e4, kTooManyGigabytes = 1e4;
constexpr double kSeconds = 0.01;

TEST(GenericPeak, EveryTypeHasARateThatACoreCanReach) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8}) {
    const double rate = PeakRate(1, Isa::kPortable, dtype).Gflops(kSeconds);
    EXPECT_GT(rate, 0) << Name(dtype);
    EXPECT_LT(rate, kTooManyGflops) << Name(dtype);
  }
}

TEST(GenericPeak, MemoryIsReadAtARateThatACoreCanReach) {
  constexpr size_t kBytes = size_t{1} << 24;
  const double rate = MeasureReadBandwidth(1, kBytes, kSeconds);
  EXPECT_GT(rate, 0);
  EXPECT_LT(rate, kTooManyGigabytes);
}

}  // namespace
}  // namespace fa::bench
