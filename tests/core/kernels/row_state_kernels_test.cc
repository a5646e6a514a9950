// Compares, on every line of the registry, kernels whose output state lies by rows with the same kernels whose state
// lies along the lanes. All bits must be equal.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

std::vector<Level> RowStateLevels() {
  std::vector<Level> levels;
  for (const Level& level : Levels()) {
    if (level.table->row_state != nullptr) levels.push_back(level);
  }
  return levels;
}

class RowStateKernelsTest : public KernelTest {
 protected:
  [[nodiscard]] const StripKernels& by_row() const { return GetParam().table->row_state[GetParam().strip]; }
};

INSTANTIATE_TEST_SUITE_P(Registry, RowStateKernelsTest, testing::ValuesIn(RowStateLevels()), LevelName);

// With these head sizes a group of columns has every possible number of vectors on every level. The last vector is
// whole or partial.
constexpr int64_t kHeads[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 57, 64, 65, 80, 96, 100};

TEST_P(RowStateKernelsTest, TheTableFindsTheStripWithItsStateByRows) {
  EXPECT_EQ(&GetParam().table->WithRowState(kernels()), &by_row());
  EXPECT_EQ(by_row().width, kernels().width);
  EXPECT_EQ(by_row().rows, kernels().rows);
  EXPECT_EQ(by_row().scores, kernels().scores);
  EXPECT_TRUE(by_row().state_by_row);
  EXPECT_FALSE(kernels().state_by_row);
  EXPECT_NE(std::string(by_row().name).find("row_state"), std::string::npos);
}

TEST_P(RowStateKernelsTest, ProductHasTheBitsOfTheStripForEveryTail) {
  const auto check = [&](int64_t keys, int64_t dv, int64_t ahead, bool scaled) {
    Matrix v(keys, dv, dv + 5, 1, 1);
    Matrix p(keys, width(), width(), 2), alpha(1, width(), width(), 3);
    Matrix lane_state(dv, width(), width(), 4);
    Matrix row_state = lane_state.Transposed();
    const RowBlock rows{.data = v.data(), .stride = v.stride(), .fetch_ahead = ahead};
    const float* a = scaled ? alpha.data() : nullptr;
    kernels().product(rows, keys, p.data(), dv, a, lane_state.data());
    by_row().product(rows, keys, p.data(), dv, a, row_state.data());
    ASSERT_TRUE(SameBits(row_state, lane_state.Transposed()));
  };
  ForEachCase(check, Axis{"keys", {1, 2, 7, 8, 19, 40}}, Axis{"dv", kHeads}, Axis{"ahead", {0, 3}},
              Axis{"scaled", {false, true}});
}

TEST_P(RowStateKernelsTest, ProductOverSeveralBlocksHasTheBitsOfTheStrip) {
  constexpr int64_t kKeys = 24, kDv = 72;
  Matrix lane_state(kDv, width(), width(), 5);
  Matrix row_state = lane_state.Transposed();
  for (uint32_t block = 0; block < 5; ++block) {
    Matrix v(kKeys, kDv, 3 * kDv, 10 + block), p(kKeys, width(), width(), 20 + block);
    Matrix alpha(1, width(), width(), 30 + block);
    const RowBlock rows{.data = v.data(), .stride = v.stride()};
    const float* a = block == 0 ? nullptr : alpha.data();
    kernels().product(rows, kKeys, p.data(), kDv, a, lane_state.data());
    by_row().product(rows, kKeys, p.data(), kDv, a, row_state.data());
    ASSERT_TRUE(SameBits(row_state, lane_state.Transposed())) << "block " << block;
  }
}

TEST_P(RowStateKernelsTest, ExactProductSkipsMaskedPairsAsTheStripDoes) {
  constexpr int64_t kKeys = 9;
  for (const int64_t dv : {1, 20, 64}) {
    Matrix v(kKeys, dv, dv + 2, 6), p(kKeys, width(), width(), 7), alpha(1, width(), width(), 8);
    v.at(2, 0) = kNan;
    v.at(3, dv - 1) = kInf;
    for (int64_t lane = 0; lane < width(); lane += 2) p.at(2, lane) = p.at(3, lane) = kMaskedProbability;
    p.at(3, 1) = 0.0f;  // this pair is not masked, so 0 * inf is NaN
    for (const bool scaled : {false, true}) {
      Matrix lane_state(dv, width(), width(), 9);
      Matrix row_state = lane_state.Transposed();
      const RowBlock rows{.data = v.data(), .stride = v.stride()};
      const float* a = scaled ? alpha.data() : nullptr;
      kernels().product_exact(rows, kKeys, p.data(), dv, a, lane_state.data());
      by_row().product_exact(rows, kKeys, p.data(), dv, a, row_state.data());
      ASSERT_TRUE(SameBits(row_state, lane_state.Transposed())) << dv << " columns, scaled " << scaled;
      for (int64_t c = 0; c < dv; ++c) EXPECT_TRUE(std::isfinite(row_state.at(0, c)));
      EXPECT_TRUE(std::isnan(row_state.at(1, dv - 1)));
    }
  }
}

TEST_P(RowStateKernelsTest, StatesAreAddedWithTheBitsOfTheStrip) {
  for (const int64_t dv : kHeads) {
    Matrix lane_state(dv, width(), width(), 11), lane_from(dv, width(), width(), 12);
    Matrix row_state = lane_state.Transposed(), row_from = lane_from.Transposed();
    Matrix own(1, width(), width(), 13), other(1, width(), width(), 14);
    kernels().add_state(lane_from.data(), other.data(), own.data(), dv, lane_state.data());
    by_row().add_state(row_from.data(), other.data(), own.data(), dv, row_state.data());
    ASSERT_TRUE(SameBits(row_state, lane_state.Transposed())) << dv;
  }
}

TEST_P(RowStateKernelsTest, OutputIsWrittenWithTheBitsOfTheStrip) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t dv : kHeads) {
      Matrix lane_state(dv, width(), width(), 15);
      Matrix row_state = lane_state.Transposed();
      Matrix multiplier(1, width(), width(), 16);
      std::vector<int32_t> zero(static_cast<size_t>(width()), 0);
      zero[1] = 1;
      // This row's multiplier is 0, so the kernel must write 0 and not NaN.
      lane_state.at(dv - 1, 1) = row_state.at(1, dv - 1) = kNan;
      const int64_t count = width() - 1, row_bytes = (dv + 3) * static_cast<int64_t>(SizeOf(dtype));
      // The comparison also shows whether bytes between and after the rows were written.
      std::vector<std::byte> by_lane_out(static_cast<size_t>(width() * row_bytes), std::byte{0xa5});
      std::vector<std::byte> by_row_out = by_lane_out;
      const auto write = [&](const StripKernels& with, const Matrix& state, std::vector<std::byte>& out) {
        std::vector<void*> targets;
        for (int64_t row = 0; row < count; ++row) targets.push_back(out.data() + row * row_bytes);
        with.write_output(state.values(), dv, multiplier.data(), zero.data(), targets.data(), dtype, count);
      };
      write(kernels(), lane_state, by_lane_out);
      write(by_row(), row_state, by_row_out);
      ASSERT_EQ(by_row_out, by_lane_out) << Name(dtype) << " " << dv;
    }
  }
}

}  // namespace
}  // namespace fa::core::kernels
