#include "tiling/forward/forward_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"

namespace fa::tiling {
namespace {

using testing::HasSubstr;

std::string Describe(const AttentionProblem& problem, const Machine& machine) {
  WorkspacePlan workspace;
  workspace.Book("scratch", 3 << 20);
  const ForwardPlan plan = MakeForwardPlan(problem, machine);
  return Describe(FactsOf("forward", problem, machine, plan, {"score_8x32", "product_8x32"}), workspace);
}

TEST(ForwardFacts, SaysWhatRunsAndWhy) {
  const std::string text = Describe(MakeProblem({.lengths = {{1024, 1024}, {7, 100}},
                                                 .heads = 8,
                                                 .heads_kv = 2,
                                                 .d = 128,
                                                 .dv = 128,
                                                 .mask = Mask::Causal()}),
                                    MakeMachine(2));
  EXPECT_THAT(text, HasSubstr("forward, f32: 2 sequences, sq 7..1024, sk 100..1024, 8 heads (2 of k and v), d 128"));
  EXPECT_THAT(text, HasSubstr("\nmask: causal\nkernels"));
  EXPECT_THAT(text, HasSubstr("kernels (avx512): score_8x32, product_8x32\n"));
  EXPECT_THAT(text, HasSubstr("tile: 128 rows x 256 keys: K and V of 256 keys"));
  EXPECT_THAT(text, HasSubstr("tasks: 66 tiles, 0 packs, 0 joins, 0 edges\n"));
  EXPECT_THAT(text, HasSubstr("k and v: read where they are\n"));
  EXPECT_THAT(text, HasSubstr("% of unmasked"));
  EXPECT_THAT(text, HasSubstr("workspace: 3.0 MiB\n  scratch: 3.0 MiB at 0\n"));
  EXPECT_THAT(text, HasSubstr("workers: 2 on 1 NUMA nodes, predicted efficiency "));
  EXPECT_THAT(text, HasSubstr("\n  worker 1: "));
}

TEST(ForwardFacts, SaysWhereKeysAreCut) {
  const std::string text = Describe(MakeProblem({.lengths = {{1, 1000}}, .heads = 3, .heads_kv = 3}), MakeMachine(1));
  EXPECT_THAT(text, HasSubstr("decode: the keys of 3 tiles are cut into 6 parts, added in their order\n"));
}

TEST(ForwardFacts, SaysWhatIsPacked) {
  const std::string text =
      Describe(MakeProblem({.lengths = {{1024, 1000}}, .heads = 3, .heads_kv = 3, .dense = false}), MakeMachine(1));
  EXPECT_THAT(text, HasSubstr("tasks: 24 tiles, 3 packs, 5 joins, "));
  EXPECT_THAT(text, HasSubstr("k and v: both packed to f32 once per head, 1 slots of 1000 rows\n"));
}

TEST(ForwardFacts, AcceptsACallWithoutSequences) {
  const AttentionProblem problem = MakeProblem({.lengths = {}});
  EXPECT_THAT(Describe(problem, MakeMachine(2)), HasSubstr("0 sequences, sq 0, sk 0"));
}

}  // namespace
}  // namespace fa::tiling
