// Dropout by seed equals dropout by mask, and the backward drops the same pairs as the forward.
#include <gtest/gtest.h>

#include "support/compare/compare_gradients.h"
#include "support/each_case.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

TEST(BackwardDropout, BySeedHasTheBitsOfTheGeneratedMask) {
  const auto check = [&](DType dtype, float keep_prob, bool packed) {
    BackwardCase c;
    c.forward.dtype = dtype;
    c.forward.heads = 3;
    c.forward.heads_kv = 1;
    c.forward.mask.mode = 3;
    c.forward.dropout = DropoutForm::kSeed;
    c.forward.keep_prob = keep_prob;
    c.forward.lengths = {{37, 37}, {149, 149}};
    if (packed) {
      c.forward.layout = Layout::kTND;
      c.forward.lengths = {{37, 0, 5, 70}, {149, 3, 61, 70}};
    }
    const BackwardProblem problem(c);
    int64_t bits = 0;
    for (int64_t b = 0; b < c.forward.batch(); ++b) {
      bits += c.forward.heads * c.forward.lengths.sq[b] * c.forward.lengths.sk[b];
    }
    std::vector<uint8_t> mask(static_cast<size_t>((bits + 7) / 8));
    ASSERT_TRUE(GenerateDropoutMask(*problem.options().dropout, keep_prob, bits, mask).ok());
    AttentionGradArgs args = problem.args();
    args.drop_mask = {mask.data(), DType::kU8, {static_cast<int64_t>(mask.size())}, {}};
    AttentionOptions options = problem.options();
    options.dropout.reset();
    for (const Isa isa : IsaLevels()) {
      const BackwardOutputs by_seed = OutputsOf(problem, ContextOf(isa));
      problem.ForgetOutputs();
      const Status status = FlashAttentionGrad(args, options, ContextOf(isa));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(SameBits(by_seed, problem.Outputs())) << Name(isa) << c;
    }
  };
  ForEachCase(check, Axis{"dtype", {DType::kF32, DType::kF16, DType::kBF16}}, Axis{"keep_prob", {0.2F, 0.9F, 1.0F}},
              Axis{"packed", {false, true}});
}

TEST(BackwardDropout, OfNoPairIsNoDropout) {
  BackwardCase c;
  c.forward.lengths = EqualLengths(1, 37, 149);
  const BackwardProblem plain(c);
  c.forward.dropout = DropoutForm::kSeed;
  const BackwardProblem kept(c);
  for (const Isa isa : IsaLevels()) {
    EXPECT_TRUE(SameBits(OutputsOf(plain, ContextOf(isa)), OutputsOf(kept, ContextOf(isa)))) << Name(isa);
  }
}

}  // namespace
}  // namespace fa::test
