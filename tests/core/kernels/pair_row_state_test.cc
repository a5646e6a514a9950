// Compares kernels of bf16 pairs whose output state lies by rows with the same kernels whose state lies along the
// lanes. All bits must be equal. exact_products_test.cc tests their products that skip masked pairs.

#include <string>
#include <vector>

#include "core/kernels/bf16_matrix.h"
#include "core/kernels/emulated_pairs.h"
#include "core/kernels/kernel_fixture.h"

namespace fa::core::kernels {
namespace {

const KernelTable& TableOf(bool emulated) {
  return emulated ? EmulatedPairs() : Kernels(Isa::kAvx512Bf16, DType::kBF16);
}

class PairRowStateTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam() && !Includes(DetectIsa(), Isa::kAvx512Bf16)) {
      GTEST_SKIP() << "this CPU executes no dot products of bf16";
    }
    ASSERT_NE(TableOf(GetParam()).row_state, nullptr);
  }
  [[nodiscard]] static const KernelTable& table() { return TableOf(GetParam()); }
};

TEST_P(PairRowStateTest, TheTableFindsTheStripWithItsStateByRows) {
  for (int i = 0; i < table().strip_count; ++i) {
    const StripKernels &strip = table().strips[i], &by_row = table().WithRowState(strip);
    ASSERT_EQ(&by_row, &table().row_state[i]);
    EXPECT_EQ(by_row.width, strip.width);
    EXPECT_EQ(by_row.rows, strip.rows);
    EXPECT_EQ(by_row.operands, Operands::kBF16Pairs);
    EXPECT_EQ(by_row.scores, strip.scores);
    EXPECT_EQ(by_row.softmax, strip.softmax);
    EXPECT_TRUE(by_row.state_by_row);
    EXPECT_FALSE(strip.state_by_row);
    EXPECT_NE(std::string(by_row.name).find("row_state"), std::string::npos);
  }
}

TEST_P(PairRowStateTest, ProductHasTheBitsOfTheStripForEveryTail) {
  const auto check = [&](int64_t number, int64_t keys, int64_t dv, bool scaled, bool listed) {
    const StripKernels &strip = table().strips[number], &by_row = table().row_state[number];
    // If the number of keys is odd, pair_rows pairs the last key with the row after it, which is NaN.
    Bf16Matrix v(keys + 1, dv, dv + 3, 4);
    for (int64_t c = 0; c < dv; ++c) v.Set(keys, c, kNan);
    std::vector<float> words(static_cast<size_t>(table().rows->PairedFloats(keys + 1, dv)));
    table().rows->pair_rows(v.block(), keys + 1, dv, words.data(), dv);
    Matrix p(keys + 1, strip.width, strip.width, 5), alpha(1, strip.width, strip.width, 6);
    strip.pairs.pair_keys(p.data(), keys, p.data());
    FetchList::Run run{reinterpret_cast<const char*>(words.data()),
                       reinterpret_cast<const char*>(words.data() + words.size())};
    FetchList list{.run = &run, .end = &run + 1};
    RowBlock rows = table().rows->Paired(words.data(), dv, listed ? 0 : 4);
    rows.fetch = listed ? &list : nullptr;
    rows.fetch_lines = listed ? 9 : 0;
    const float* a = scaled ? alpha.data() : nullptr;
    Matrix want(dv, strip.width, strip.width, 7);
    Matrix have = want.Transposed();
    strip.product(table().rows->Paired(words.data(), dv), keys, p.data(), dv, a, want.data());
    by_row.product(rows, keys, p.data(), dv, a, have.data());
    ASSERT_TRUE(SameBits(have, want.Transposed())) << by_row.name;
    if (listed && keys >= 40) {
      ASSERT_GT(list.at, run.begin);
    }
  };
  ForEachCase(check, Axis{"strip", test::FromTo(0, table().strip_count - 1)}, Axis{"keys", {1, 2, 3, 8, 17, 40}},
              Axis{"dv", {1, 3, 4, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 100, 130}},
              Axis{"scaled", {false, true}}, Axis{"listed", {false, true}});
}

INSTANTIATE_TEST_SUITE_P(Levels, PairRowStateTest, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "emulated" : "avx512_bf16"); });

}  // namespace
}  // namespace fa::core::kernels
