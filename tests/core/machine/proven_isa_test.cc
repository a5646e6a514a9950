// Levels tried against the ones below: right kernels pass, each kind of wrong one is seen, and what falls back says so.

#include "core/machine/proven_isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
using kernels::RowKernels;
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

/// A level's table of floats whose parts may be made wrong: portable is the level, and the one below.
struct Copy {
  Copy() {
    const KernelTable& right = kernels::Kernels(Isa::kPortable);
    strips.assign(right.strips, right.strips + right.strip_count);
    row_state.assign(right.row_state, right.row_state + right.strip_count);
    few.assign(right.few, right.few + right.few_count);
    rows = *right.rows;
  }
  [[nodiscard]] std::string Disproof() const {
    const KernelTable& right = kernels::Kernels(Isa::kPortable);
    const KernelTable copy = {right.isa,       strips.data(), right.strip_count, few.data(),
                              right.few_count, &rows,         row_state.data()};
    return kernels::Disproof(copy, right);
  }
  std::vector<StripKernels> strips, row_state, few;
  RowKernels rows;
};

const StripKernels& RightStrip() { return kernels::Kernels(Isa::kPortable).strips[0]; }
const RowKernels& RightRows() { return *kernels::Kernels(Isa::kPortable).rows; }

/// One way to be wrong, the kind that an instruction of the wrong lane, tail or rounding would be.
struct Mistake {
  const char* seen_as;
  std::function<void(Copy&)> make;
};

const Mistake kMistakes[] = {
    {"scores of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].scores = [](const kernels::RowBlock& k, int64_t keys, const float* panel, int64_t d, bool accumulate,
                               float* s, float* row_max) {
         RightStrip().scores(k, keys, panel, d - 1, accumulate, s, row_max);  // forgets the tail of the depth
       };
     }},
    {"scores of few_2_portable",
     [](Copy& c) {
       c.few[1].scores = [](const kernels::RowBlock& k, int64_t keys, const float* panel, int64_t d, bool accumulate,
                            float* s, float* row_max) {
         kernels::Kernels(Isa::kPortable).few[1].scores(k, keys, panel, d, accumulate, s, row_max);
         s[0] = -s[0];
       };
     }},
    {"softmax of f32_6x8_portable",
     [](Copy& c) {
       c.strips[0].softmax = [](float* s, int64_t keys, float factor, const float* block_max, float* row_max,
                                float* row_sum, float* alpha) {
         RightStrip().softmax(s, keys, factor, block_max, row_max, row_sum, alpha);
         row_sum[7] *= 1.0001f;
       };
     }},
    {"product of f32_6x8_row_state_portable",
     [](Copy& c) {
       c.row_state[0].product = [](const kernels::RowBlock& v, int64_t keys, const float* p, int64_t dv,
                                   const float* alpha, float* o) {
         kernels::Kernels(Isa::kPortable).row_state[0].product(v, keys, p, dv, alpha, o);
         o[dv - 1] = __builtin_nanf("");
       };
     }},
    {"softcap of f32_12x4_portable",
     [](Copy& c) {
       c.strips[1].scale_scores = [](float* s, int64_t keys, float scale, float /*softcap*/, float* row_max) {
         kernels::Kernels(Isa::kPortable).strips[1].scale_scores(s, keys, scale, 0, row_max);
       };
     }},
    {"exponentials of portable",
     [](Copy& c) {
       c.rows.exp2 = [](const float* x, int64_t n, float* y) {
         RightRows().exp2(x, n, y);
         for (int64_t i = 0; i < n; ++i) y[i] *= 1 + 1e-5f;
       };
     }},
    {"conversions of portable",
     [](Copy& c) {
       c.rows.narrow = [](const float* src, int64_t stride, int64_t rows, int64_t columns, float multiplier,
                          const kernels::RowTarget& dst) {
         RightRows().narrow(src, stride, rows, columns, multiplier * (1 + 0x1p-7f), dst);
       };
     }},
    {"row kernels of portable",
     [](Copy& c) { c.rows.all_finite = [](const void* /*x*/, DType /*dtype*/, int64_t /*n*/) { return true; }; }},
    {"outer products of portable",
     [](Copy& c) {
       c.rows.outer = [](const kernels::OuterArgs& args) {
         kernels::OuterArgs fewer = args;
         --fewer.rows;
         RightRows().outer(fewer);
       };
     }},
    {"two outer products at once of portable",
     [](Copy& c) {
       c.rows.outer_both = [](const kernels::OuterArgs& args, const kernels::OuterArgs& /*then*/) {
         RightRows().outer(args);
         RightRows().outer(args);
       };
     }},
};

TEST(ProvenIsa, EveryMistakeOfFloatsIsSeenAndNamed) {
  EXPECT_EQ(Copy().Disproof(), "");
  for (const Mistake& mistake : kMistakes) {
    Copy copy;
    mistake.make(copy);
    EXPECT_EQ(copy.Disproof(), mistake.seen_as);
  }
}

TEST(ProvenIsa, MistakesOfIntegersAreSeen) {
  const Int8Table& right = kernels::Int8KernelsFor(Isa::kPortable);
  std::vector<Int8Kernels> strips(right.strips, right.strips + right.strip_count);
  Int8Table table = right;
  table.strips = strips.data();
  EXPECT_EQ(kernels::Disproof(table, right), "");
  strips[1].product = [](const uint32_t* v, int64_t v_stride, int64_t keys, const uint32_t* p, int64_t dv, int32_t* o) {
    const Int8Table& own = kernels::Int8KernelsFor(Isa::kPortable);
    own.strips[1].product(v, v_stride, keys, p, dv, o);
    ++o[dv];
  };
  EXPECT_EQ(kernels::Disproof(table, right), "integers of i8_4x4_portable");
}

TEST(ProvenIsa, MistakesOfTheIndexerAreSeen) {
  const IndexerKernels& right = kernels::IndexerKernelsFor(Isa::kPortable);
  IndexerKernels table = right;
  EXPECT_EQ(kernels::Disproof(table, right), "");
  table.keys_up_to = [](const uint32_t* /*keys*/, int64_t n, uint32_t /*last*/) { return n; };
  EXPECT_EQ(kernels::Disproof(table, right), "sums of indexer_portable");
}

TEST(ProvenIsa, MistakesOfTilesAreSeen) {
  const KernelTable &right = kernels::Kernels(Isa::kAmxEmulated, DType::kBF16),
                    &below = kernels::Kernels(Isa::kPortable);
  EXPECT_EQ(kernels::Disproof(right, below), "");
  std::vector<StripKernels> strips(right.strips, right.strips + right.strip_count);
  KernelTable table = right;
  table.strips = strips.data();
  strips[0].overlapped = [](const kernels::ProductArgs* product, const kernels::SoftmaxArgs* softmax,
                            const kernels::ScoreArgs* scores) {
    kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[0].overlapped(product, softmax, scores);
    if (softmax == nullptr) return;
    for (int lane = 16; lane < 32; ++lane) softmax->s[lane] = 1.0f;  // a second tile of lanes that was not there yet
  };
  EXPECT_EQ(kernels::Disproof(table, below), "product in one loop of bf16_32x32_amx_emulated");
  strips[0].product = [](const kernels::RowBlock& v, int64_t keys, const float* p, int64_t dv, const float* alpha,
                         float* o) {  // forgets the keys after the first group
    kernels::Kernels(Isa::kAmxEmulated, DType::kBF16).strips[0].product(v, keys < 32 ? keys : 32, p, dv, alpha, o);
  };
  EXPECT_EQ(kernels::Disproof(table, below), "product of bf16_32x32_amx_emulated");
}

// A processor family of two levels above portable, of which the second multiplies wrongly.
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
