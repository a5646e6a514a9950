// Levels are compared with the level below: right kernels pass, and a level with wrong ones falls back and says so.
// tests/core/kernels/proof tests which mistakes the proof finds.

#include "core/machine/proven_isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/context_impl.h"
#include "core/kernels/proof/proof.h"
#include "fa/fa.h"
#include "support/fp_control.h"

namespace fa::core {
namespace {

using kernels::IndexerKernels;
using kernels::Int8Kernels;
using kernels::Int8Table;
using kernels::KernelTable;
using kernels::StripKernels;
using testing::HasSubstr;

bool Every(Isa /*isa*/) { return true; }

TEST(ProvenIsa, EveryLevelOfThisCpuIsRight) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    const ProvenIsa proven = Prove(isa, {.unproven = Every});
    EXPECT_EQ(proven.isa, isa);
    EXPECT_EQ(proven.note, "");
  }
}

// A processor family with two levels above portable. The second one multiplies wrongly.
constexpr Isa kLower = Isa::kNeon, kUpper = Isa::kNeonDotprod;

const Int8Table& WrongAbove(Isa isa) {
  static const std::vector<Int8Table> tables = [] {
    static std::vector<Int8Kernels> wrong;
    const Int8Table& right = kernels::Int8KernelsFor(Isa::kPortable);
    wrong.assign(right.strips, right.strips + right.strip_count);
    for (Int8Kernels& strip : wrong) {
      strip.scores = [](const uint32_t* /*k*/, const int32_t* /*start*/, int64_t keys, int64_t /*words*/,
                        const uint32_t* /*panel*/, float* s, float* /*row_max*/) { s[keys] = 1; };
    }
    std::vector<Int8Table> made(3, right);
    made[1].isa = kLower;
    made[2].isa = kUpper;
    made[2].strips = wrong.data();
    return made;
  }();
  return tables[Includes(isa, kUpper) ? 2 : Includes(isa, kLower) ? 1 : 0];
}
const KernelTable& Portable(Isa /*isa*/, DType /*dtype*/) { return kernels::Kernels(Isa::kPortable); }
const IndexerKernels& PortableIndexer(Isa /*isa*/) { return kernels::IndexerKernelsFor(Isa::kPortable); }

ProvenIsa ProveWrong(Isa wanted, bool (*unproven)(Isa)) {
  return Prove(wanted, {.floats = Portable, .int8 = WrongAbove, .indexer = PortableIndexer, .unproven = unproven});
}

TEST(ProvenIsa, AWrongLevelFallsBackToTheOneBelowIt) {
  const ProvenIsa proven = ProveWrong(Isa::kNeonBf16, Every);
  EXPECT_EQ(proven.isa, kLower);
  EXPECT_EQ(proven.note, "neon_dotprod, for its integers of i8_4x8_portable are wrong on this CPU; neon is used");
  EXPECT_EQ(ProveWrong(kLower, Every).note, "");
}

TEST(ProvenIsa, AWrongTileUnitFallsBackToTheLevelBelow) {
  const auto floats = [](Isa isa, DType dtype) -> const KernelTable& {
    static std::vector<StripKernels> strips;
    static const KernelTable wrong = [] {
      KernelTable table = kernels::Kernels(Isa::kAmxEmulated, DType::kBF16);
      strips.assign(table.strips, table.strips + table.strip_count);
      strips[1].pair_lanes = [](const float* /*s*/, int64_t /*keys*/, float* /*rounded*/) {};
      table.isa = Isa::kAvx512Amx;
      table.strips = strips.data();
      return table;
    }();
    return isa == Isa::kAvx512Amx && dtype == DType::kBF16 ? wrong : kernels::Kernels(Isa::kPortable);
  };
  const ProvenIsa proven =
      Prove(Isa::kAvx512Amx, {.floats = floats,
                              .int8 = [](Isa) -> const Int8Table& { return kernels::Int8KernelsFor(Isa::kPortable); },
                              .indexer = PortableIndexer,
                              .unproven = IsUnproven});
  EXPECT_EQ(proven.isa, Isa::kAvx512Bf16);
  EXPECT_EQ(proven.note, "avx512_amx, for its outer products of avx512_amx are wrong on this CPU; avx512_bf16 is used");
}

TEST(ProvenIsa, ALevelThatIsProvenIsNotTried) {
  EXPECT_EQ(ProveWrong(Isa::kNeonBf16, [](Isa) { return false; }).isa, Isa::kNeonBf16);
}

TEST(ProvenIsa, OnlyLevelsThatNeverRanAreUnproven) {
  for (const Isa isa : AllIsas()) {
    const bool tiles = isa == Isa::kAvx512Amx || isa == Isa::kAmxEmulated;
    EXPECT_EQ(IsUnproven(isa), tiles || Includes(isa, Isa::kNeon)) << Name(isa);
  }
}

TEST(ProvenIsa, ContextAndPlanSayWhatFellBack) {
  const ProvenIsa proven = ProveWrong(kUpper, Every);
  const auto context = Context::Impl::ToContext(std::make_unique<Context::Impl>(
      ContextSettings{.workers = 1, .isa = Isa::kPortable, .isa_note = proven.note}, Topology::Detect()));
  EXPECT_EQ(context->isa_note(), proven.note);
  EXPECT_THAT(context->Describe(), HasSubstr("\nisa not used: neon_dotprod, for its integers of "));
  float nothing = 0;
  AttentionArgs args;
  args.q = args.k = args.v = args.out = MutableTensorView{&nothing, DType::kF32, {1, 1, 1, 1}, {}};
  const auto plan = PlanFlashAttention(args, {}, context.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->Describe(), HasSubstr("\nisa not used: neon_dotprod, for its integers of "));
}

TEST(ProvenIsa, ThisProcessHasNothingToSayOfItsLevels) {
  testing::internal::CaptureStderr();
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    EXPECT_EQ(ProvenLevel(isa).isa, isa);
    EXPECT_EQ(&ProvenLevel(isa), &ProvenLevel(isa));  // tried once
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProvenIsa, TheCallersRoundingIsNoProofOfAnything) {
  for (const test::FpControl& control : test::kFpControls) {
    ProvenIsa proven;
    {
      const test::CallersFpControl callers(control);
      proven = Prove(DetectIsa(), {.unproven = Every});
    }
    EXPECT_EQ(proven.note, "") << control.name;
  }
}

}  // namespace
}  // namespace fa::core
