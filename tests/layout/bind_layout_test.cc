#include "layout/bind_layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace fa::layout {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kRows = 5, kHeadSize = 4;

Dims ShapeOf(Layout layout) {
  switch (layout) {
    case Layout::kBSH: return {kBatch, kRows, kHeads * kHeadSize};
    case Layout::kSBH: return {kRows, kBatch, kHeads * kHeadSize};
    case Layout::kBSND: return {kBatch, kRows, kHeads, kHeadSize};
    case Layout::kTND: return {kRows, kHeads, kHeadSize};
    default: break;
  }
  return {kBatch, kHeads, kRows, kHeadSize};
}

class BindLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(BindLayout, DenseRowsCoverTheTensorOnce) {
  const TensorView tensor = {nullptr, DType::kF32, ShapeOf(GetParam()), {}};
  const Rows rows = RowsOf(tensor, AxesOf(GetParam()), kHeadSize);
  const int64_t batch = GetParam() == Layout::kTND ? 1 : kBatch;
  std::set<int64_t> offsets;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t n = 0; n < kHeads; ++n) {
      for (int64_t s = 0; s < kRows; ++s) offsets.insert(rows.Offset(b, n, s));
    }
  }
  const auto count = static_cast<size_t>(batch * kHeads * kRows);
  ASSERT_EQ(offsets.size(), count);
  EXPECT_EQ(*offsets.begin(), 0);
  EXPECT_EQ(*offsets.rbegin(), static_cast<int64_t>(count - 1) * kHeadSize);
}

INSTANTIATE_TEST_SUITE_P(AllLayouts, BindLayout,
                         ::testing::Values(Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND,
                                           Layout::kBNSD_BSND));

TEST(BindLayout, RowsFollowGivenStrides) {
  const TensorView tensor = {nullptr, DType::kF16, {2, 5, 3, 4}, {1000, 100, 10, 1}};
  const Rows rows = RowsOf(tensor, AxesOf(Layout::kBSND), 4);
  EXPECT_EQ(rows.dtype, DType::kF16);
  EXPECT_EQ(rows.Offset(1, 2, 3), 1000 + 2 * 10 + 3 * 100);
}

TEST(BindLayout, OutputOfBnsdBsndIsBsnd) {
  EXPECT_EQ(OutputLayout(Layout::kBNSD_BSND), Layout::kBSND);
  EXPECT_EQ(OutputLayout(Layout::kSBH), Layout::kSBH);
}

TEST(BindLayout, SpanEndsBehindTheLastElement) {
  EXPECT_EQ(SpanBytes({nullptr, DType::kF32, {2, 3}, {}}), 24);
  EXPECT_EQ(SpanBytes({nullptr, DType::kF16, {2, 3}, {100, 1}}), 206);
  EXPECT_EQ(SpanBytes({nullptr, DType::kF16, {7, 3}, {0, 1}}), 6);
  EXPECT_EQ(SpanBytes({nullptr, DType::kF32, {2, 0}, {100, 1}}), 0);
  EXPECT_EQ(SpanBytes({nullptr, DType::kF32, {1, 3}, {std::numeric_limits<int64_t>::max(), 1}}), 12);
}

TEST(BindLayout, StatisticsWithAndWithoutCopies) {
  const Stats plain = StatsOf({nullptr, DType::kF32, {2, 3, 5}, {}}, /*packed=*/false);
  EXPECT_EQ(plain.copies, 1);
  EXPECT_EQ(plain.Offset(1, 2, 4), 29);
  const Stats copies = StatsOf({nullptr, DType::kF32, {2, 3, 5, 8}, {}}, /*packed=*/false);
  EXPECT_EQ(copies.copies, 8);
  EXPECT_EQ(copies.copy_stride, 1);
  EXPECT_EQ(copies.Offset(1, 2, 4), 29 * 8);
  const Stats packed = StatsOf({nullptr, DType::kF32, {5, 3, 8}, {8, 40, 1}}, /*packed=*/true);
  EXPECT_EQ(packed.Offset(0, 2, 4), 2 * 40 + 4 * 8);
}

}  // namespace
}  // namespace fa::layout
