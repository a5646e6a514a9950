// Queries, keys and values of 8 bits with scales: int8 and e4m3 with a rope part, and e4m3 with a scale per key. The
// results are those of the formulas in double, on each level. Errors name the wrong argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/inference/infer/scaled_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

using ::testing::HasSubstr;

const tbb::global_control kManyThreads(tbb::global_control::max_allowed_parallelism, 7);

/// A decode of latent attention: all query heads share one KV head, with a rope part.
ScaledCase Latent(DType format) {
  ScaledCase c;
  c.infer = MakeInferCase(8, 1, {1, 3, 1, 2}, {300, 70, 0, 40});
  c.infer.dense.d = 64;
  c.infer.dense.dv = 64;
  c.infer.dense.d_rope = 32;
  c.infer.dense.mask.mode = 3;
  c.format = format;
  if (format == DType::kF8E4M3) c.q_scale = c.k_scale = 0.3;
  return c;
}

/// Grouped queries of e4m3 with a scale per key and head.
ScaledCase Grouped() {
  ScaledCase c;
  c.infer = MakeInferCase(6, 2, {1, 40, 5}, {300, 90, 3});
  c.infer.dense.d = 64;
  c.infer.dense.dv = 32;
  c.infer.dense.mask.mode = 3;
  c.format = DType::kF8E4M3;
  c.per_key = c.per_head = true;
  c.q_scale = c.k_scale = 0.3;
  c.v_scale = 0.5;
  return c;
}

ScaledCase In(ScaledCase c, Layout layout, Cache cache, int64_t page_rows = 16) {
  c.infer.layout = layout;
  c.infer.cache = cache;
  c.infer.page_rows = page_rows;
  return c;
}

TEST(ScaledInference, LatentAttentionIsThatOfTheFormulas) {
  for (const DType format : {DType::kI8, DType::kF8E4M3}) {
    for (const DType rope : kFloats) {
      for (const DType out : kFloats) {
        ScaledCase c = In(Latent(format), Layout::kTND_NTD, Cache::kPagesNz, 32);
        c.rope = rope;
        c.out = out;
        EXPECT_TRUE(RunsLikeTheFormulas(c));
      }
    }
    ScaledCase plain = In(Latent(format), Layout::kBNSD_NBSD, Cache::kPagesOfHeads);
    plain.infer.dense.d_rope = 0;
    EXPECT_TRUE(RunsLikeTheFormulas(plain));
  }
}

TEST(ScaledInference, RealSizesOfLatentAttention) {
  for (const DType format : {DType::kI8, DType::kF8E4M3}) {
    ScaledCase c = Latent(format);
    c.infer = MakeInferCase(32, 1, {1, 2}, {1300, 260});
    c.infer.dense.d = c.infer.dense.dv = 512;
    c.infer.dense.d_rope = 64;
    c.infer.dense.mask.mode = 3;
    EXPECT_TRUE(RunsLikeTheFormulas(In(c, Layout::kBSND_NBSD, Cache::kPagesNz, 128)));
  }
}

TEST(ScaledInference, GroupedQueriesAreThoseOfTheFormulas) {
  for (const double factor : {0.0, 1.0, 17.5, 448.0, 1e-3, 1e-45}) {
    for (const Cache cache : {Cache::kPagesOfHeads, Cache::kOneTensor, Cache::kPagesOfRows}) {
      ScaledCase c = In(Grouped(), Layout::kNTD_TND, cache);
      c.factor = factor;
      EXPECT_TRUE(RunsLikeTheFormulas(c));
    }
  }
}

TEST(ScaledInference, ScalesOfAnySizeAndSign) {
  for (ScaledCase c : {Latent(DType::kI8), Latent(DType::kF8E4M3), Grouped()}) {
    c.infer.dense.d_rope = 0;
    for (const double q_scale : {0.0, -0.02, 1e-30, 2.0}) {
      for (const double v_scale : {0.0, -3.0, 1e30, 1e-30}) {
        c.q_scale = q_scale;
        c.v_scale = v_scale;
        EXPECT_TRUE(RunsLikeTheFormulas(c));
      }
    }
  }
}

// Scales may be very large or small. Only their product must be a normal number of f32.
TEST(ScaledInference, LargeAndSmallScalesMeet) {
  for (ScaledCase c : {Latent(DType::kI8), Latent(DType::kF8E4M3)}) {
    c.infer.dense.d_rope = 0;
    for (const double power : {1e37, 1e-37}) {
      c.q_scale = power;
      c.k_scale = 1e-3 / power;
      c.v_scale = 1e36;
      EXPECT_TRUE(RunsLikeTheFormulas(c));
    }
  }
}

// Masked values may be NaN, and rows that see a NaN are NaN.
TEST(ScaledInference, NanReachesOnlyTheRowsThatSeeIt) {
  ScaledCase c = Grouped();
  c.infer.dense.lengths = {{40}, {90}};
  c.nan_key = 80;
  EXPECT_TRUE(RunsLikeTheFormulas(c));
}

// If each sequence has one key, the shape does not tell scales per key from scales per head.
TEST(ScaledInference, OneKeyPerSequence) {
  for (const Cache cache : {Cache::kOneTensor, Cache::kList, Cache::kPagesOfHeads}) {
    for (const bool says : {false, true}) {
      if (says && IsPaged(cache)) continue;
      ScaledCase c = In(Grouped(), Layout::kBNSD, cache, 1);
      c.infer.dense.lengths = {{1, 2, 1}, {1, 1, 1}};
      c.factor = 17.5;
      c.says_per_key = says;
      EXPECT_TRUE(RunsLikeTheFormulas(c));
    }
  }
}

TEST(ScaledInference, OneScalePerKeyIsRefusedWhateverTheKeys) {
  for (const int64_t keys : {1, 30}) {
    ScaledCase c = Latent(DType::kI8);
    c.infer.dense.d_rope = 0;
    c.infer.dense.lengths = {{1}, {keys}};
    c.per_key = c.says_per_key = true;
    const ScaledProblem integers(c);
    EXPECT_THAT(InferAttention(integers.args(), integers.options()).message(),
                HasSubstr("k_scale: one per key, want one per head (q.dtype=i8)"));
    c.format = DType::kF8E4M3;
    c.infer.dense.d_rope = 32;
    const ScaledProblem rope(c);
    EXPECT_THAT(InferAttention(rope.args(), rope.options()).message(),
                HasSubstr("q_rope: given, want none (k_scale: more than one per head)"));
  }
}

// A row of many keys is as accurate as one of 512 keys, the most that one sum of f32 adds. With u = 2^-24, each
// rounding of such a sum of n numbers of one sign is at most u times the partial sum. If the roundings are independent,
// the relative error has the deviation u sqrt(n) / 3, which is 7.5 u. Six deviations are allowed: 45 u for the sum in
// lse, and sqrt(2) times as much for out, a quotient of two sums. The joins of 256 parts in pairs, the exponentials and
// the last rounding add at most 16 u. Sums that are not cut would have the deviation 121 u.
TEST(ScaledInference, ErrorsDoNotGrowWithTheKeys) {
  constexpr double kUnit = 0x1p-24;
  for (const DType format : {DType::kI8, DType::kF8E4M3}) {
    ScaledCase c;
    c.infer = MakeInferCase(1, 1, {1}, {131072});
    c.infer.dense.d = 16;
    c.infer.dense.dv = 8;
    c.format = format;
    c.positive = true;
    c.q_scale = c.k_scale = format == DType::kI8 ? 0.003 : 0.1;
    const ScaledProblem problem(c);
    const ScaledReference want = problem.Reference();
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(InferAttention(problem.args(), problem.options(), ContextOf(isa)).ok());
      const ForwardOutputs got = problem.Outputs();
      for (size_t x = 0; x < want.out.size(); ++x) {
        EXPECT_NEAR(got.out[x] / want.out[x], 1, (64 + 16) * kUnit) << x << " " << c << IsaName(isa);
      }
      EXPECT_NEAR(got.lse[0], want.lse[0], (45 + 16 + want.lse[0]) * kUnit) << c << IsaName(isa);
    }
  }
}

class ScaledBits : public ::testing::TestWithParam<Isa> {};

TEST_P(ScaledBits, DoNotDependOnLayoutAndCache) {
  for (const ScaledCase& c : {Latent(DType::kI8), Latent(DType::kF8E4M3), Grouped()}) {
    ScaledCase base = c;
    base.infer.dense.d = base.infer.dense.dv = 64;
    const ForwardOutputs want = OutputsOf(base, ContextOf(GetParam(), 2));
    const auto check = [&](const ScaledCase& other) {
      if (other.infer.packed() && other.infer.cache == Cache::kList) return;
      const ForwardOutputs got = OutputsOf(other, ContextOf(GetParam(), 2));
      EXPECT_EQ(got.out, want.out) << other;
      EXPECT_EQ(got.lse, want.lse) << other;
    };
    for (const Cache cache : kCaches) {
      for (const Layout layout : kPaddedLayouts) check(In(base, layout, cache));
      for (const Layout layout : kPackedLayouts) check(In(base, layout, cache, 50));
    }
  }
}

TEST_P(ScaledBits, DoNotDependOnThreadsAndNeighbours) {
  for (const ScaledCase& c : {Latent(DType::kI8), Latent(DType::kF8E4M3), Grouped()}) {
    const ForwardOutputs want = OutputsOf(c, ContextOf(GetParam(), 1));
    for (const int threads : {2, 7, 0}) {
      const ForwardOutputs got = OutputsOf(c, ContextOf(GetParam(), threads));
      EXPECT_EQ(got.out, want.out) << threads << " " << c;
      EXPECT_EQ(got.lse, want.lse) << threads << " " << c;
    }
    ScaledCase alone = c;
    alone.infer.dense.lengths = {{c.infer.dense.lengths.sq[0]}, {c.infer.dense.lengths.sk[0]}};
    const ForwardOutputs one = OutputsOf(alone, ContextOf(GetParam(), 2));
    EXPECT_TRUE(std::equal(one.out.begin(), one.out.end(), want.out.begin())) << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ScaledBits, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& level) { return IsaName(level.param); });

/// A plan for any lengths has room for the lengths of each case.
TEST(ScaledInference, LargestWorkspaceSuffices) {
  for (const ScaledCase& c : {Latent(DType::kI8), Grouped()}) {
    const ScaledProblem problem(c);
    const auto plan = PlanInferAttention(problem.args(), problem.options(), ContextOf(IsaLevels().back()));
    const auto most = InferAttentionMaxWorkspace(problem.args(), problem.options(), ContextOf(IsaLevels().back()));
    ASSERT_TRUE(plan.ok() && most.ok());
    EXPECT_GE(*most, plan->workspace_bytes());
  }
}

const float kOne = 1, kTooLarge = 449, kNone = 0;
const TensorView kOneNumber{&kOne, DType::kF32, {1}, {}};

struct Refusal {
  const char* message;
  std::function<void(InferAttentionArgs*)> make;
  bool grouped = false;
};

const Refusal kRefusals[] = {
    {"q_scale: missing (q.dtype is f8e4m3)", [](auto* a) { a->q_scale = {}; }, true},
    {"q_scale.dtype=f16, want f32", [](auto* a) { a->q_scale.dtype = DType::kF16; }},
    {"q_scale.shape=[4,8], want [4,8,3]",
     [](auto* a) {
       a->q_scale = {a->q_scale.data, DType::kF32, {4, 8}, {}};
     }},
    {"q_scale: given, want none (q.dtype=f16)", [](auto* a) { a->q.dtype = DType::kF16; }},
    {"k_scale: missing (q_scale: given)", [](auto* a) { a->k_scale = {}; }},
    {"v_scale: missing (q_scale: given)", [](auto* a) { a->v_scale = {}; }},
    {"pse: given, want none (q_scale: given)", [](auto* a) { a->pse = kOneNumber; }},
    {"sink: given, want none (q_scale: given)", [](auto* a) { a->sink = kOneNumber; }},
    {"deq_scale1: given, want none (q_scale: given)", [](auto* a) { a->deq_scale1 = kOneNumber; }},
    {"deq_scale2: given, want none (q_scale: given)", [](auto* a) { a->deq_scale2 = kOneNumber; }},
    {"k_offset: given, want none (q_scale: given)", [](auto* a) { a->k_offset = a->k_scale; }},
    {"v_offset: given, want none (q_scale: given)", [](auto* a) { a->v_offset = a->v_scale; }},
    {"antiquant_scale: given, want none (q_scale: given)", [](auto* a) { a->antiquant_scale = kOneNumber; }},
    {"q_padding: given, want none (q_scale: given)", [](auto* a) { a->q_padding = kOneNumber; }},
    {"k_prefix: given, want none (q_scale: given)", [](auto* a) { a->k_prefix = kOneNumber; }},
    {"quant_scale1: given, want none (q_scale: given)", [](auto* a) { a->quant_scale1 = kOneNumber; }},
    {"quant_scale1.dtype=i32, want f32",
     [](auto* a) {
       a->quant_scale1 = {&kOne, DType::kI32, {1}, {}};
     },
     true},
    {"quant_scale1=449, want a number above 0, at most 448",
     [](auto* a) {
       a->quant_scale1 = {&kTooLarge, DType::kF32, {1}, {}};
     },
     true},
    {"quant_scale1=0, want a number above 0, at most 448",
     [](auto* a) {
       a->quant_scale1 = {&kNone, DType::kF32, {1}, {}};
     },
     true},
    {"quant_scale1: given, want none (k_scale: not one per key)",
     [](auto* a) {
       a->quant_scale1 = kOneNumber;
       a->k_scale = {&kOne, DType::kF32, {1, 1, 1, 1}, {}};
     },
     true},
    {"q_rope.dtype=i8, want f32, f16 or bf16", [](auto* a) { a->q_rope.dtype = DType::kI8; }},
    {"out.dtype=i32, want f32, f16, bf16 or i8", [](auto* a) { a->out.dtype = DType::kI32; }},
};

TEST(ScaledInference, ErrorsNameTheArgument) {
  const ScaledProblem latent(Latent(DType::kI8)), grouped(Grouped());
  for (const Refusal& refusal : kRefusals) {
    const ScaledProblem& problem = refusal.grouped ? grouped : latent;
    InferAttentionArgs args = problem.args();
    refusal.make(&args);
    const Snapshot before = problem.TakeSnapshot();
    before.Forget();
    const ForwardOutputs forgotten = problem.Outputs();
    const Status status = InferAttention(args, problem.options());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.message;
    EXPECT_THAT(status.message(), HasSubstr(refusal.message));
    EXPECT_EQ(before.FirstChange(), -1) << refusal.message;
    EXPECT_EQ(problem.Outputs().out, forgotten.out) << refusal.message;
    EXPECT_EQ(problem.Outputs().lse, forgotten.lse) << refusal.message;
  }
}

TEST(ScaledInference, KeysAndValuesHaveTheTypeOfQueries) {
  const ScaledProblem problem(Grouped());
  InferAttentionArgs args = problem.args();
  std::vector<TensorView> k(args.k.begin(), args.k.end());
  k[0].dtype = DType::kI8;
  args.k = k;
  EXPECT_THAT(InferAttention(args, problem.options()).message(), HasSubstr("k.dtype=i8, want f8e4m3 (q.dtype)"));
}

}  // namespace
}  // namespace fa::test
