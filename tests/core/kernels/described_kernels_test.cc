#include "core/kernels/described_kernels.h"

#include <gtest/gtest.h>

#include <string_view>

namespace fa::core::kernels {
namespace {

void ExpectSame(const StripKernels& described, const StripKernels& own) {
  EXPECT_STREQ(described.name, own.name);
  EXPECT_EQ(described.isa, own.isa) << own.name;
  EXPECT_EQ(described.width, own.width) << own.name;
  EXPECT_EQ(described.rows, own.rows) << own.name;
  EXPECT_EQ(described.any_dtype, own.any_dtype) << own.name;
  EXPECT_EQ(described.operands, own.operands) << own.name;
  EXPECT_EQ(described.state_by_row, own.state_by_row) << own.name;
  EXPECT_EQ(described.in_place, own.in_place) << own.name;
  EXPECT_EQ(described.scores_by_address, own.scores_by_address) << own.name;
}

TEST(DescribedKernels, SayWhatTheTablesOfThisCpuSay) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const KernelTable &own = Kernels(isa, dtype), &described = DescribedKernels(isa, dtype);
      EXPECT_EQ(described.isa, own.isa);
      ASSERT_EQ(described.strip_count, own.strip_count);
      ASSERT_EQ(described.row_state != nullptr, own.row_state != nullptr);
      for (int s = 0; s < own.strip_count; ++s) {
        ExpectSame(described.strips[s], own.strips[s]);
        if (own.row_state != nullptr) ExpectSame(described.row_state[s], own.row_state[s]);
      }
      ASSERT_EQ(described.heads_in_place != nullptr, own.heads_in_place != nullptr);
      if (own.heads_in_place != nullptr) ExpectSame(*described.heads_in_place, *own.heads_in_place);
      ASSERT_EQ(described.few_count, own.few_count);
      for (int f = 0; f < own.few_count; ++f) ExpectSame(described.few[f], own.few[f]);
      EXPECT_EQ(described.rows->pair_group, own.rows->pair_group) << Name(isa);
      for (int64_t columns = 0; columns < 200; ++columns) {
        ASSERT_EQ(described.rows->panel_columns(columns), own.rows->panel_columns(columns)) << Name(isa);
      }
    }
  }
}

TEST(DescribedKernels, OfInt8AndTheIndexerSayWhatTheTablesOfThisCpuSay) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    const Int8Table &own = Int8KernelsFor(isa), &described = DescribedInt8Kernels(isa);
    EXPECT_EQ(described.isa, own.isa);
    EXPECT_EQ(described.group, own.group) << Name(isa);
    EXPECT_EQ(described.columns, own.columns) << Name(isa);
    ASSERT_EQ(described.strip_count, own.strip_count);
    for (int s = 0; s < own.strip_count; ++s) {
      EXPECT_STREQ(described.strips[s].name, own.strips[s].name);
      EXPECT_EQ(described.strips[s].isa, own.strips[s].isa);
      EXPECT_EQ(described.strips[s].width, own.strips[s].width);
    }
    EXPECT_STREQ(DescribedIndexerKernels(isa).name, IndexerKernelsFor(isa).name);
    EXPECT_EQ(DescribedIndexerKernels(isa).isa, IndexerKernelsFor(isa).isa);
  }
}

TEST(DescribedKernels, AreThoseOfEveryLevelThatThisCpuLacks) {
  for (const Isa isa : AllIsas()) {
    if (Includes(DetectIsa(), isa)) continue;
    EXPECT_EQ(&Kernels(isa, DType::kBF16), &DescribedKernels(isa, DType::kBF16));
    EXPECT_EQ(&Int8KernelsFor(isa), &DescribedInt8Kernels(isa));
    EXPECT_EQ(&IndexerKernelsFor(isa), &DescribedIndexerKernels(isa));
    EXPECT_TRUE(std::string_view(Kernels(isa).strips[0].name).find(Name(Kernels(isa).isa)) != std::string_view::npos);
  }
}

}  // namespace
}  // namespace fa::core::kernels
