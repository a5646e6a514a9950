#include "tiling/backward/backward_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tiling/sample_problems.h"
#include "tiling/backward/make_backward_plan.h"

namespace fa::tiling {
namespace {

using testing::HasSubstr;

std::string DescribeBackward(const AttentionProblem& problem, const Machine& machine) {
  WorkspacePlan workspace;
  workspace.Book("dq", 3 << 20);
  const BackwardPlan plan = MakeBackwardPlan(problem, machine);
  return Describe(FactsOf(problem, machine, plan, {"f32_8x32"}), workspace);
}

TEST(BackwardFacts, SaysWhatRunsAndWhy) {
  const std::string text = DescribeBackward(MakeProblem({.lengths = {{1024, 1024}, {7, 100}},
                                                         .heads = 8,
                                                         .heads_kv = 2,
                                                         .d = 128,
                                                         .dv = 128,
                                                         .mask = Mask::Causal()}),
                                            MakeMachine(2));
  EXPECT_THAT(text, HasSubstr("backward, f32: 2 sequences, sq 7..1024, sk 100..1024, 8 heads (2 of k and v), d 128"));
  EXPECT_THAT(text, HasSubstr("\nmask: causal\nkernels"));
  EXPECT_THAT(text, HasSubstr("kernels (avx512): f32_8x32\n"));
  EXPECT_THAT(text, HasSubstr("tile: 128 rows x 128 keys: K, V, dK and dV of 128 keys"));
  EXPECT_THAT(text, HasSubstr("384 KiB of L2; bands of 1 columns of 2 heads at once for 2 workers\n"));
  // A causal head of 8 x 8 blocks has 36 tiles, and the head of the short sequence has 1. Where two heads share a slot,
  // a join orders them.
  EXPECT_THAT(text, HasSubstr("tasks: 296 tiles, 2 joins, "));
  EXPECT_THAT(
      text,
      HasSubstr("in flight: 2 kv heads, of up to 1024 rows and 1024 keys each, one query head after the other\n"));
  EXPECT_THAT(text, HasSubstr("% of unmasked"));
  EXPECT_THAT(text, HasSubstr("workspace: 3.0 MiB\n  dq: 3.0 MiB at 0\n"));
  EXPECT_THAT(text, HasSubstr("workers: 2 on 1 NUMA nodes, predicted efficiency "));
  EXPECT_THAT(text, HasSubstr("\n  worker 1: load "));
}

TEST(BackwardFacts, SaysInWhichOrderKeyBlocksAreAdded) {
  const auto text = [](std::vector<std::pair<int64_t, int64_t>> lengths, Mask mask) {
    return DescribeBackward(MakeProblem({.lengths = std::move(lengths), .mask = std::move(mask)}), MakeMachine(1));
  };
  EXPECT_THAT(text({{300, 300}}, {}), HasSubstr("dq: key blocks added from the first to the last\n"));
  EXPECT_THAT(text({{300, 300}}, Mask::Causal()), HasSubstr("dq: key blocks added from the last to the first\n"));
  EXPECT_THAT(
      text({{300, 300}, {1, 300}}, Mask::Causal()),
      HasSubstr("dq: key blocks added from the last to the first in 1 sequences, from the first in the others\n"));
}

TEST(BackwardFacts, AcceptsACallWithoutSequences) {
  EXPECT_THAT(DescribeBackward(MakeProblem({.lengths = {}}), MakeMachine(2)), HasSubstr("0 sequences, sq 0, sk 0"));
}

}  // namespace
}  // namespace fa::tiling
