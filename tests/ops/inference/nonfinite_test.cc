// Tests NaN and inf in inputs of prompt and decode attention. NaN and inf spread by IEEE arithmetic into the rows that
// see them. All other rows keep their bits.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/inference/decode/random_decode_case.h"
#include "ops/inference/prompt/random_prompt_case.h"
#include "support/cases/random_values.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"
#include "support/poison.h"

namespace fa::test {
namespace {

constexpr double kValues[] = {NAN, INFINITY, -INFINITY};

/// Puts a value that is not finite into q, k or v.
void Spoil(uint64_t seed, reference::Problem* values) {
  std::vector<double>* const targets[] = {&values->q, &values->k, &values->v};
  std::vector<double>* target = targets[seed % 3];
  if (target->empty()) return;
  (*target)[RandomBits(seed, Tag::kChoice, {-2}) % target->size()] = kValues[seed / 3 % 3];
}

/// Returns a case without int8 keys and without int8 output, because int8 has no NaN or inf.
DecodeCase FloatDecodeCase(uint64_t seed) {
  DecodeCase c = RandomDecodeCase(seed);
  c.quantization = Quantization::kNone;
  c.int8_out.reset();
  return c;
}

PromptCase FloatPromptCase(uint64_t seed) {
  PromptCase c = RandomPromptCase(seed, false);
  c.out_dtype = c.dtype;
  return c;
}

TEST(DecodeNonFinite, SpreadsAsInTheReference) {
  const int cases = RandomCases(60);
  for (int seed = 3001; seed < 3001 + cases; ++seed) {
    const DecodeCase c = FloatDecodeCase(static_cast<uint64_t>(seed));
    reference::Problem values = MakeReferenceProblem(c.dense);
    Spoil(static_cast<uint64_t>(seed), &values);
    ASSERT_TRUE(RunsLikeTheReference(DecodeProblem(c, values)));
  }
}

TEST(DecodeNonFinite, WhereNoQueryLooksItChangesNothing) {
  const int cases = RandomCases(60);
  int64_t poisoned = 0;
  for (int seed = 3501; seed < 3501 + cases; ++seed) {
    const DecodeCase c = FloatDecodeCase(static_cast<uint64_t>(seed));
    const DecodeProblem usual(c);
    for (const double value : {kValues[seed % 3], LargestFinite(c.dense.dtype)}) {
      reference::Problem values = usual.values();
      poisoned += PoisonUnseen(value, &values);
      const DecodeProblem other(c, values);
      for (const Isa isa : IsaLevels()) {
        ASSERT_TRUE(SameBits(OutputsOf(other, ContextOf(isa)), OutputsOf(usual, ContextOf(isa))))
            << IsaName(isa) << " " << value << " " << c;
      }
    }
  }
  EXPECT_GT(poisoned, 0);
}

TEST(PromptNonFinite, SpreadsAsInTheReference) {
  const int cases = RandomCases(60);
  for (int seed = 4001; seed < 4001 + cases; ++seed) {
    const PromptCase c = FloatPromptCase(static_cast<uint64_t>(seed));
    reference::Problem values = DrawPromptValues(c);
    Spoil(static_cast<uint64_t>(seed), &values);
    const PromptProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(RunsLikeTheReference(problem, ContextOf(isa))) << IsaName(isa) << " " << c;
    }
  }
}

TEST(PromptNonFinite, InfiniteSinksTakeEverythingOrNothing) {
  const auto check = [&](DType dtype, Layout layout) {
    PromptCase c{.dtype = dtype, .out_dtype = dtype, .layout = layout, .heads = 4, .heads_kv = 2, .sq = 40, .sk = 300};
    if (layout == Layout::kTND) c.lengths_q = {40}, c.lengths_kv = {300};
    c.sink = c.statistics = true;
    c.mask.mode = 3;
    reference::Problem values = DrawPromptValues(c);
    values.sink[1] = INFINITY;
    values.sink[2] = -INFINITY;
    const PromptProblem problem(c, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(RunsLikeTheReference(problem, ContextOf(isa))) << IsaName(isa) << " " << c;
      const std::vector<double> out = problem.Outputs();
      for (int64_t x = 40 * c.dv; x < 2 * 40 * c.dv; ++x) ASSERT_EQ(out[x], 0) << IsaName(isa) << " " << c;
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kF16, DType::kBF16}},
              Axis{"layout", {Layout::kBNSD, Layout::kTND}});
}

TEST(PromptNonFinite, OneKeyOfAllHasItsValue) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    PromptCase c{.dtype = dtype, .out_dtype = dtype, .heads = 2, .heads_kv = 2, .sq = 90, .sk = 90};
    c.mask = {.mode = 4, .pre = 0, .next = 0};
    const PromptProblem problem(c);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(problem.Run(ContextOf(isa)).ok());
      EXPECT_EQ(problem.Outputs(), problem.values().v) << IsaName(isa) << " " << c;
    }
  }
}

TEST(PromptNonFinite, WhereNoQueryLooksItChangesNothing) {
  const int cases = RandomCases(60);
  int64_t poisoned = 0;
  for (int seed = 4501; seed < 4501 + cases; ++seed) {
    const PromptCase c = FloatPromptCase(static_cast<uint64_t>(seed));
    const PromptProblem usual(c);
    reference::Problem values = DrawPromptValues(c);
    values.dense_mask = usual.values().dense_mask;
    poisoned += PoisonUnseen(kValues[seed % 3], &values);
    values.dense_mask = {};
    const PromptProblem other(c, values);
    for (const Isa isa : IsaLevels()) {
      ASSERT_TRUE(usual.Run(ContextOf(isa)).ok());
      ASSERT_TRUE(other.Run(ContextOf(isa)).ok());
      ASSERT_EQ(other.Outputs(), usual.Outputs()) << IsaName(isa) << " " << c;
    }
  }
  EXPECT_GT(poisoned, 0);
}

// An int8 output has no NaN: a NaN becomes -128, whatever the offset.
TEST(PromptNonFinite, BecomesTheLeastOfAnInt8Output) {
  PromptCase c;
  c.out_dtype = DType::kI8;
  c.with_offset = true;
  c.offset2 = 9;
  reference::Problem values = DrawPromptValues(c);
  values.q[5] = NAN;
  const PromptProblem problem(c, values);
  for (const Isa isa : IsaLevels()) {
    ASSERT_TRUE(problem.Run(ContextOf(isa)).ok());
    const std::vector<double> out = problem.Outputs();
    for (int64_t x = 0; x < c.dv; ++x) EXPECT_EQ(out[x], -128) << IsaName(isa);
    EXPECT_NE(out[c.dv], -128) << IsaName(isa);
  }
}

}  // namespace
}  // namespace fa::test
