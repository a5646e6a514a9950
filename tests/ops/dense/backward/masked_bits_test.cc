// A masked value contributes exactly nothing: gradients of rows and keys that do not see it have the same bits,
// whatever the value is. The test runs the kernels of every level of this CPU, and emulated kernels of bf16 pairs on
// any CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/kernels/emulated_pairs.h"
#include "ops/dense/backward_tile.h"
#include "ops/dense/gradient_sums.h"
#include "ops/plan/plan_machine.h"
#include "support/cases/random_backward_case.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"
#include "support/poison.h"
#include "tiling/backward/make_backward_plan.h"
#include "tiling/workspace_plan.h"

namespace fa::test {
namespace {

using core::kernels::KernelTable;

/// Runs FlashAttentionGrad on one thread with the kernels of `table`.
BackwardOutputs OutputsWith(const KernelTable& table, const BackwardProblem& problem) {
  const AttentionGradArgs args = problem.args();
  const ops::BoundAttentionGrad bound = ops::BindAttentionGrad(args, problem.options()).value();
  const tiling::BackwardPlan plan =
      tiling::MakeBackwardPlan(bound.forward.problem, ops::MachineOf(*ContextOf(Isa::kPortable, 1), table));
  tiling::WorkspacePlan booked;
  const ops::BackwardBuffers buffers(bound, plan, table, booked);
  const GuardedBuffer workspace(booked.total_bytes());
  const tiling::AttentionProblem& sizes = bound.forward.problem;
  const ops::GradRows rows = ops::RowsOf(bound, args);
  ops::WriteTailGradients(sizes, rows);
  ops::ClearGradientSums(sizes, buffers, workspace.data());
  ops::BackwardTile tile(sizes, plan, table, rows, buffers, workspace.data());
  for (int64_t position = 0; position < plan.graph.task_count; ++position) tile(plan.graph.TaskAt(position), 0);
  ops::WriteGradientSums(sizes, table, rows, buffers, workspace.data());
  return problem.Outputs();
}

std::vector<const KernelTable*> TablesFor(DType dtype) {
  std::vector<const KernelTable*> tables;
  for (const Isa isa : IsaLevels()) tables.push_back(&core::kernels::Kernels(isa, dtype));
  if (dtype == DType::kBF16) tables.push_back(&core::kernels::EmulatedPairs());
  return tables;
}

/// Returns a case that every kernel table can compute. One in three is bf16.
BackwardCase RandomCase(int seed) {
  BackwardCase c = RandomBackwardCase(static_cast<uint64_t>(seed));
  if (seed % 3 == 0) c.forward.dtype = DType::kBF16;
  c.forward.pse_minus_inf_share = 0;  // a bias of -inf is no mask and follows IEEE rules
  return c;
}

std::vector<const std::vector<double>*> AllOf(const reference::Gradients& g) {
  return {&g.dq, &g.dk, &g.dv, &g.dq_rope, &g.dk_rope, &g.dpse, &g.dslopes, &g.dsink};
}

TEST(BackwardMaskedBits, ArithmeticOfEmulatedPairsIsTheReferences) {
  for (const int mode : {1, 3}) {
    BackwardCase c;
    c.forward.dtype = DType::kBF16;
    c.forward.lengths = EqualLengths(1, 70, 150);
    c.forward.mask.mode = mode;
    const BackwardProblem problem(c);
    const ExpectedGradients expected = ExpectGradients(c, problem.values());
    EXPECT_TRUE(MatchesReference(OutputsWith(core::kernels::EmulatedPairs(), problem), expected)) << mode;
  }
}

TEST(BackwardMaskedBits, DoNotDependOnWhatNobodySees) {
  const double poisons[] = {NAN, INFINITY, -static_cast<double>(INFINITY)};
  const int cases = RandomCases(40);
  int64_t poisoned = 0;
  for (int seed = 7001; seed < 7001 + cases; ++seed) {
    const BackwardCase c = RandomCase(seed);
    BackwardValues values = MakeBackwardValues(c);
    const BackwardProblem clean(c, values);
    poisoned += PoisonUnseen(poisons[seed / 3 % 3], &values.problem);
    const BackwardProblem dirty(c, values);
    for (const KernelTable* table : TablesFor(c.forward.dtype)) {
      EXPECT_TRUE(SameBits(OutputsWith(*table, dirty), OutputsWith(*table, clean))) << table->widest().name << c;
    }
  }
  EXPECT_GT(poisoned, cases);
}

/// Expects that every element is NaN or has the bits that are wanted.
void ExpectNanOrSame(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t x = 0; x < got.size(); ++x) ASSERT_TRUE(std::isnan(got[x]) || got[x] == want[x]) << "element " << x;
}

// Some rows see a NaN. Each element of a gradient is NaN, or has the bits that it would have without the NaN.
TEST(BackwardMaskedBits, DoNotDependOnWhatOthersSee) {
  const int cases = RandomCases(40);
  for (int seed = 8001; seed < 8001 + cases; ++seed) {
    const BackwardCase c = RandomCase(seed);
    reference::Problem values = MakeReferenceProblem(c.forward);
    const BackwardProblem clean(c, MakeBackwardValues(c, values));
    std::vector<double>* const parts[] = {&values.k, &values.v, &values.q};
    std::vector<double>& part = *parts[seed / 3 % 3];
    if (part.empty()) continue;
    part[static_cast<size_t>(seed) * 7919 % part.size()] = NAN;
    const BackwardProblem dirty(c, MakeBackwardValues(c, values));
    for (const KernelTable* table : TablesFor(c.forward.dtype)) {
      const reference::Gradients want = OutputsWith(*table, clean).gradients,
                                 got = OutputsWith(*table, dirty).gradients;
      SCOPED_TRACE(testing::Message() << table->widest().name << " " << c);
      for (size_t i = 0; i < AllOf(got).size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(ExpectNanOrSame(*AllOf(got)[i], *AllOf(want)[i])) << "gradient " << i;
      }
    }
  }
}

}  // namespace
}  // namespace fa::test
