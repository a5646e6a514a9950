// Tests that every level has its facts on any machine, and its functions if this CPU has the level.

#include "core/kernels/kernel_facts.h"

#include <gtest/gtest.h>

#include <string_view>

#include "core/kernels/indexer/indexer_kernel_types.h"

namespace fa::core::kernels {
namespace {

constexpr DType kOperandTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

bool Mentions(const char* name, Isa isa) { return std::string_view(name).ends_with(Name(isa)); }

TEST(KernelFacts, NameTheirLevelsFromWideToNarrow) {
  for (const Isa isa : AllIsas()) {
    for (const DType dtype : kOperandTypes) {
      const LevelFacts facts = FactsOf(isa, dtype);
      EXPECT_GT(facts.strip_count, 0) << Name(isa);
      for (int i = 0; i < facts.strip_count; ++i) {
        EXPECT_TRUE(Mentions(facts.strips[i].name, facts.isa)) << facts.strips[i].name;
        EXPECT_TRUE(i == 0 || facts.strips[i].width < facts.strips[i - 1].width) << facts.strips[i].name;
      }
      for (int i = 0; i < facts.few_count; ++i) {
        EXPECT_TRUE(Mentions(facts.few[i].name, facts.few[i].isa)) << facts.few[i].name;
      }
      EXPECT_EQ(Kernels(isa, dtype).pairs(), dtype == DType::kBF16 && MultipliesPairs(isa)) << Name(isa);
    }
  }
}

TEST(KernelFacts, FunctionsAreThereWhereThisCpuHasTheLevel) {
  for (const Isa isa : AllIsas()) {
    if (isa != F32LevelOf(isa)) continue;
    const bool here = Includes(DetectIsa(), isa);
    EXPECT_EQ(Kernels(isa).strips[0].scores != nullptr, here) << Name(isa);
    EXPECT_EQ(Kernels(isa).few[0].product != nullptr, here) << Name(isa);
    EXPECT_EQ(Kernels(isa).rows->outer != nullptr, here) << Name(isa);
    EXPECT_EQ(Int8KernelsFor(isa).pack_keys != nullptr, Includes(DetectIsa(), Int8LevelOf(isa))) << Name(isa);
    EXPECT_EQ(IndexerKernelsFor(isa).add_heads != nullptr, here) << Name(isa);
    EXPECT_TRUE(Mentions(IndexerKernelsFor(isa).name, isa)) << Name(isa);
  }
  for (const Isa isa : AllIsas()) {
    if (!MultipliesPairs(isa)) continue;
    const KernelTable& pairs = Kernels(isa, DType::kBF16);
    const bool here = Includes(DetectIsa(), isa);
    EXPECT_EQ(pairs.strips[0].pairs.pair_keys != nullptr, here) << Name(isa);
    EXPECT_EQ(pairs.strips[0].passes.add_bias != nullptr, here) << Name(isa);
    EXPECT_EQ(pairs.rows->pair_rows != nullptr, here) << Name(isa);
  }
}

// Kernels of few rows have the function `attend` exactly if their facts list head sizes for it.
TEST(KernelFacts, FewRowsThatAttendHaveTheirLoop) {
  int attending = 0;
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    for (const DType dtype : kOperandTypes) {
      const KernelTable& table = Kernels(isa, dtype);
      for (int i = 0; i < table.few_count; ++i) {
        const bool attends = table.few[i].attended.most_columns > 0;
        EXPECT_EQ(table.few[i].few_rows.attend != nullptr, attends) << table.few[i].name;
        attending += attends ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(attending > 0, Includes(DetectIsa(), Isa::kAvx2));
}

}  // namespace
}  // namespace fa::core::kernels
