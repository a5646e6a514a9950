// Dropout by seed must give the same outputs as dropout by the mask of this seed.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/philox.h"
#include "support/compare/compare.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

std::vector<uint8_t> Generate(PhiloxState state, float keep_prob, int64_t bits, Context* context = nullptr) {
  std::vector<uint8_t> mask(static_cast<size_t>((bits + 7) / 8), 0xAA);
  const Status status = GenerateDropoutMask(state, keep_prob, bits, mask, context);
  EXPECT_TRUE(status.ok()) << status.message();
  return mask;
}

TEST(GenerateDropoutMask, IsPhiloxAgainstTheThreshold) {
  const auto check = [&](PhiloxState state, float keep_prob, int64_t bits) {
    const std::vector<uint8_t> mask = Generate(state, keep_prob, bits);
    for (int64_t f = 0; f < bits; ++f) {
      ASSERT_EQ(
          (mask[f / 8] >> (f % 8) & 1) != 0,
          reference::PhiloxKeeps(state.seed, state.offset, static_cast<double>(keep_prob), static_cast<uint64_t>(f)))
          << "bit " << f << " keep_prob " << keep_prob;
    }
    const int past_the_end = bits % 8 == 0 ? 0 : mask.back() >> (bits % 8);
    ASSERT_EQ(past_the_end, 0) << bits << " bits";
  };
  ForEachCase(check,
              Axis{"state",
                   {PhiloxState{.seed = 1, .offset = 0}, PhiloxState{.seed = 0, .offset = 1},
                    PhiloxState{.seed = 0x123456789ABCDEF0, .offset = 0xFEDCBA9876543210}}},
              Axis{"keep_prob", {0.1F, 0.5F, 0.9F, 1.0F}}, Axis{"bits", {1, 3, 8, 1001}});
}

TEST(GenerateDropoutMask, WritesItsBytesAlone) {
  std::vector<uint8_t> mask(10, 0xAA);
  ASSERT_TRUE(GenerateDropoutMask({.seed = 4, .offset = 2}, 0.5F, 20, mask).ok());
  for (size_t x = 3; x < mask.size(); ++x) EXPECT_EQ(mask[x], 0xAA) << x;
}

TEST(GenerateDropoutMask, DoesNotDependOnThreadsOrLevel) {
  const std::vector<uint8_t> usual = Generate({.seed = 4, .offset = 2}, 0.3F, 3'000'001);
  for (const Isa isa : IsaLevels()) {
    for (const int threads : {1, 2, 3}) {
      EXPECT_EQ(usual, Generate({.seed = 4, .offset = 2}, 0.3F, 3'000'001, ContextOf(isa, threads))) << Name(isa);
    }
  }
}

TEST(GenerateDropoutMask, RefusesBadArguments) {
  std::vector<uint8_t> mask(4, 0xAA);
  for (const auto& [keep_prob, bits] : {std::pair{0.0F, 8}, {-0.5F, 8}, {1.5F, 8}, {NAN, 8}, {0.5F, -1}, {0.5F, 33}}) {
    const Status status = GenerateDropoutMask({}, keep_prob, bits, mask);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << keep_prob << ' ' << bits;
  }
  for (const uint8_t byte : mask) EXPECT_EQ(byte, 0xAA);
}

class ForwardDropout : public ::testing::TestWithParam<Isa> {};

TEST_P(ForwardDropout, BySeedHasTheBitsOfTheGeneratedMask) {
  const auto check = [&](DType dtype, float keep_prob, bool packed) {
    ForwardCase c;
    c.dtype = dtype;
    c.heads = 3;
    c.heads_kv = 1;
    c.mask.mode = 3;
    c.dropout = DropoutForm::kSeed;
    c.keep_prob = keep_prob;
    c.lengths = {{37, 37}, {149, 149}};
    if (packed) {
      c.layout = Layout::kTND;
      c.lengths = {{37, 0, 5, 70}, {149, 3, 61, 70}};
    }
    const ForwardProblem problem(c);
    const ForwardOutputs by_seed = OutputsOf(problem, ContextOf(GetParam()));
    int64_t bits = 0;
    for (int64_t b = 0; b < c.batch(); ++b) bits += c.heads * c.lengths.sq[b] * c.lengths.sk[b];
    const std::vector<uint8_t> mask = Generate(*problem.options().dropout, keep_prob, bits);

    problem.ForgetOutputs();
    AttentionArgs args = problem.args();
    args.drop_mask = {mask.data(), DType::kU8, {static_cast<int64_t>(mask.size())}, {}};
    AttentionOptions options = problem.options();
    options.dropout.reset();
    const Status status = FlashAttention(args, options, ContextOf(GetParam()));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(SameBits(by_seed, problem.Outputs())) << c;
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kF16, DType::kBF16}}, Axis{"keep_prob", {0.2F, 0.9F, 1.0F}},
              Axis{"packed", {false, true}});
}

TEST_P(ForwardDropout, StatisticsAreThoseBeforeDropout) {
  ForwardCase c;
  c.lengths = EqualLengths(1, 37, 149);
  const ForwardOutputs plain = OutputsOf(c, ContextOf(GetParam()));
  c.dropout = DropoutForm::kSeed;
  c.keep_prob = 0.5F;
  const ForwardOutputs dropped = OutputsOf(c, ContextOf(GetParam()));
  EXPECT_EQ(plain.max, dropped.max);
  EXPECT_EQ(plain.sum, dropped.sum);
  EXPECT_NE(plain.out, dropped.out);
}

TEST_P(ForwardDropout, ALongerMaskIsTaken) {
  ForwardCase c;
  c.dropout = DropoutForm::kMask;
  c.keep_prob = 0.5F;
  const ForwardProblem problem(c);
  const ForwardOutputs usual = OutputsOf(problem, ContextOf(GetParam()));
  std::vector<uint8_t> longer(problem.values().drop_bits);
  longer.resize(longer.size() + 100, 0xFF);
  AttentionArgs args = problem.args();
  args.drop_mask = {longer.data(), DType::kU8, {static_cast<int64_t>(longer.size())}, {}};
  problem.ForgetOutputs();
  ASSERT_TRUE(FlashAttention(args, problem.options(), ContextOf(GetParam())).ok());
  EXPECT_TRUE(SameBits(usual, problem.Outputs()));
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardDropout, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
