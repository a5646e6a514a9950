// A call of FlashAttention without a plan makes one. So planning must make few allocations, however many items the plan
// has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/tiling/sample_problems.h"
#include "tiling/forward/make_forward_plan.h"

namespace {

thread_local int64_t allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes > 0 ? bytes : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace fa::tiling {
namespace {

int64_t AllocationsOfPlanning(const AttentionProblem& problem, const Machine& machine, size_t tiles) {
  const int64_t before = allocations;
  const ForwardPlan plan = MakeForwardPlan(problem, machine);
  EXPECT_EQ(plan.items.size(), tiles);
  return allocations - before;
}

TEST(PlanAllocation, ASingleTileTakesAHandful) {
  const AttentionProblem problem = MakeProblem({.lengths = {{64, 64}}});
  EXPECT_LE(AllocationsOfPlanning(problem, MakeMachine(1), 1), 12);
  EXPECT_LE(AllocationsOfPlanning(problem, MakeMachine(2), 1), 16);
}

// Vectors are reserved, or double their size when full. So allocations hardly grow with the number of tiles, and the
// bounds are far below it.
TEST(PlanAllocation, AHundredThousandItemsTakeFarFewer) {
  const AttentionProblem causal = MakeProblem(
      {.lengths = {{131072, 131072}}, .heads = 100, .heads_kv = 100, .d = 128, .dv = 128, .mask = Mask::Causal()});
  EXPECT_LE(AllocationsOfPlanning(causal, MakeMachine(64, 2), 102400), 200);
  AttentionProblem packed = causal;
  packed.k_in_place = false;
  EXPECT_LE(AllocationsOfPlanning(packed, MakeMachine(64, 2), 102400), 3000);
}

TEST(PlanAllocation, EqualSequencesAreMeasuredOnce) {
  const AttentionProblem batch =
      MakeProblem({.lengths = std::vector<std::pair<int64_t, int64_t>>(3000, {512, 512}), .mask = Mask::Causal()});
  EXPECT_LE(AllocationsOfPlanning(batch, MakeMachine(8), 12000), 100);
}

}  // namespace
}  // namespace fa::tiling
