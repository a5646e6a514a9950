// The self-check compares the kernels of an instruction-set level with those of the level below. Correct kernels must
// pass, and a wrong output must be named. If the kernels of a level are wrong, a context uses the level below and says
// so. If the caller asked for that level by name, making the context fails.

#include "ops/self_check/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/amx_emulated.h"
#include "core/context/context_impl.h"
#include "core/machine/cpu.h"
#include "fa/fa.h"
#include "ops/plan/verbose.h"
#include "support/fp_control.h"

namespace fa::ops {
namespace {

using testing::HasSubstr;

bool Every(Isa /*isa*/) { return true; }
bool None(Isa /*isa*/) { return false; }

TEST(SelfCheck, EveryLevelOfThisCpuIsRight) {
  for (const Isa isa : AllIsas()) {
    if (!Includes(DetectIsa(), isa)) continue;
    EXPECT_EQ(DifferenceOf(isa, LevelBelow(isa)), "");
    EXPECT_TRUE(CheckLevel(isa).ok());
    const ProvenIsa proven = Prove(isa, Every);
    EXPECT_EQ(proven.isa, isa);
    EXPECT_EQ(proven.wrong, "");
  }
}

// CPUs with a tile unit (AMX) are rare, so this test runs the plain C++ emulation of the tile unit's kernels. It must
// pass the self-check.
TEST(SelfCheck, TheEmulatedTileUnitIsRight) {
  if (core::IsLeftOut(core::kAmxEmulated)) GTEST_SKIP() << "this library was built without the level";
  EXPECT_EQ(FirstDifference(CheckedOutputs(core::kAmxEmulated), CheckedOutputs(Isa::kPortable)), "");
}

TEST(SelfCheck, ALevelThatThisCpuLacksIsRefusedByName) {
  for (const Isa isa : AllIsas()) {
    if (Includes(DetectIsa(), isa)) continue;
    const Status status = CheckLevel(isa);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << Name(isa);
    EXPECT_EQ(status.argument(), "level");
  }
}

// The compared outputs must be numbers, not NaN, and must not all be 0.
TEST(SelfCheck, OutputsAreNumbersButBehindTheirRows) {
  for (const CheckedOutput& output : CheckedOutputs(DetectIsa())) {
    const auto numbers = std::count_if(output.values.begin(), output.values.end(), [](float x) { return x == x; });
    const auto others =
        std::count_if(output.values.begin(), output.values.end(), [](float x) { return x != 0 && std::isfinite(x); });
    EXPECT_GT(numbers, static_cast<int64_t>(output.values.size()) * 7 / 10) << output.name;
    EXPECT_GT(others, static_cast<int64_t>(output.values.size()) / 4) << output.name;
  }
}

TEST(SelfCheck, AnyWrongElementIsSeenAndNamed) {
  const std::vector<CheckedOutput> right = CheckedOutputs(Isa::kPortable);
  EXPECT_EQ(FirstDifference(right, right), "");
  for (size_t i = 0; i < right.size(); ++i) {
    float largest = 0;
    for (const float x : right[i].values) largest = std::isfinite(x) ? std::max(largest, std::fabs(x)) : largest;
    for (const size_t at : {size_t{0}, right[i].values.size() / 2, right[i].values.size() - 2}) {
      for (const float wrong : {right[i].values[at] + 0x1p-5f * largest, __builtin_nanf("")}) {
        std::vector<CheckedOutput> level = right;
        level[i].values[at] = wrong;
        EXPECT_EQ(FirstDifference(level, right), std::isnan(right[i].values[at]) ? "" : right[i].name);
      }
    }
    // The check also finds a kernel that writes after the end of a row.
    const auto behind = std::find_if(right[i].values.begin(), right[i].values.end(), [](float x) { return x != x; });
    if (behind == right[i].values.end()) continue;
    std::vector<CheckedOutput> level = right;
    level[i].values[static_cast<size_t>(behind - right[i].values.begin())] = 0;
    EXPECT_EQ(FirstDifference(level, right), right[i].name);
  }
}

TEST(SelfCheck, LevelsBelowAreOfTheSameFamily) {
  EXPECT_EQ(LevelBelow(Isa::kPortable), Isa::kPortable);
  EXPECT_EQ(LevelBelow(Isa::kAvx2), Isa::kPortable);
  EXPECT_EQ(LevelBelow(Isa::kAvx512Amx), Isa::kAvx512Bf16);
  EXPECT_EQ(LevelBelow(Isa::kNeon), Isa::kPortable);
  EXPECT_EQ(LevelBelow(Isa::kNeonDotprod), Isa::kNeon);
  EXPECT_EQ(LevelBelow(core::kAmxEmulated), Isa::kPortable);
}

TEST(SelfCheck, OnlyLevelsOfAarch64AreUnproven) {
  for (const Isa isa : AllIsas()) EXPECT_EQ(IsUnproven(isa), Includes(isa, Isa::kNeon)) << Name(isa);
}

// Stands in for CheckedOutputs. A call on neon fails.
std::vector<CheckedOutput> FailingCallsOfNeon(Isa isa) {
  if (isa == Isa::kNeon) throw std::logic_error("internal: no kernel");
  return {};
}

TEST(SelfCheck, ACallThatFailsIsADifference) {
  EXPECT_EQ(DifferenceOf(Isa::kNeon, Isa::kPortable, FailingCallsOfNeon), "neon's call failed: internal: no kernel");
  const ProvenIsa proven = Prove(Isa::kNeon, IsUnproven,
                                 [](Isa level, Isa below) { return DifferenceOf(level, below, FailingCallsOfNeon); });
  EXPECT_EQ(proven.isa, Isa::kPortable);
  EXPECT_EQ(proven.wrong, "neon's call failed: internal: no kernel");
}

// FA_VERBOSE reports the calls of the user only, and no call of the self-check.
TEST(SelfCheck, ReportsNoRuns) {
  SetVerbose(true);
  testing::internal::CaptureStderr();
  const size_t outputs = CheckedOutputs(Isa::kPortable).size();
  const std::string text = testing::internal::GetCapturedStderr();
  SetVerbose(false);
  EXPECT_GT(outputs, 0u);
  EXPECT_EQ(text, "");
}

// Stands in for the comparison of a level with the level below. It says that neon_dotprod is wrong.
std::string WrongDotprod(Isa level, Isa below) {
  EXPECT_EQ(below, LevelBelow(level));
  return level == Isa::kNeonDotprod ? "neon_dotprod's dk of f32 is not neon's on this CPU" : "";
}

TEST(SelfCheck, AWrongLevelFallsBackToTheOneBelowIt) {
  const ProvenIsa proven = Prove(Isa::kNeonBf16, IsUnproven, WrongDotprod);
  EXPECT_EQ(proven.isa, Isa::kNeon);
  EXPECT_EQ(proven.wrong, "neon_dotprod's dk of f32 is not neon's on this CPU");
  EXPECT_EQ(Prove(Isa::kNeon, IsUnproven, WrongDotprod).wrong, "");
}

TEST(SelfCheck, ALevelThatIsProvenIsNotTried) {
  const ProvenIsa proven = Prove(Isa::kNeonBf16, None, WrongDotprod);
  EXPECT_EQ(proven.isa, Isa::kNeonBf16);
  EXPECT_EQ(proven.wrong, "");
}

TEST(SelfCheck, ContextAndPlanSayWhatFellBack) {
  const ProvenIsa proven = {Isa::kPortable, "neon's dk of f32 is not portable's on this CPU"};
  const auto settings = AtProvenLevel({.workers = 1, .isa = Isa::kNeonBf16}, {}, {}, proven);
  ASSERT_TRUE(settings.ok());
  const auto context = Context::Impl::ToContext(std::make_unique<Context::Impl>(*settings, core::Topology::Detect()));
  const std::string note = "neon_bf16, for neon's dk of f32 is not portable's on this CPU; portable is used";
  EXPECT_EQ(context->isa(), Isa::kPortable);
  EXPECT_EQ(context->isa_note(), note);
  EXPECT_THAT(context->Describe(), HasSubstr("\nisa not used: " + note));
  float nothing = 0;
  AttentionArgs args;
  args.q = args.k = args.v = args.out = MutableTensorView{&nothing, DType::kF32, {1, 1, 1, 1}, {}};
  const auto plan = PlanFlashAttention(args, {}, context.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->Describe(), HasSubstr("\nisa not used: " + note));
}

TEST(SelfCheck, AWrongLevelThatWasAskedForIsRefused) {
  const ContextSettings wanted{.isa = Isa::kNeonBf16};
  const ProvenIsa proven = {Isa::kPortable, "neon's dk of f32 is not portable's on this CPU"};
  const Status by_option = AtProvenLevel(wanted, {.isa = Isa::kNeonBf16}, {}, proven).status();
  EXPECT_EQ(by_option.message(), "unsupported: isa=neon_bf16, but neon's dk of f32 is not portable's on this CPU");
  EXPECT_EQ(by_option.argument(), "isa");
  const Status by_environment = AtProvenLevel(wanted, {}, {.force_isa = "neon_bf16"}, proven).status();
  EXPECT_EQ(by_environment.message(),
            "unsupported: FA_FORCE_ISA=neon_bf16, but neon's dk of f32 is not portable's on this CPU");
  EXPECT_TRUE(AtProvenLevel(wanted, {}, {.force_isa = ""}, proven).ok());
}

TEST(SelfCheck, TheCallersRoundingIsNoProofOfAnything) {
  for (const test::FpControl& control : test::kFpControls) {
    std::string wrong;
    {
      const test::CallersFpControl callers(control);
      wrong = Prove(DetectIsa(), Every).wrong;
    }
    EXPECT_EQ(wrong, "") << control.name;
  }
}

}  // namespace
}  // namespace fa::ops
