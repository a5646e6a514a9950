// The tasks of a backward plan in random valid orders, each on a random worker: the bits of the usual call. Workspace
// starts as NaN.
#include <gtest/gtest.h>

#include "ops/dense/backward_tile.h"
#include "ops/dense/gradient_sums.h"
#include "ops/plan/plan_machine.h"
#include "support/backward_problem.h"
#include "support/compare_gradients.h"
#include "support/contexts.h"
#include "support/random_backward_case.h"
#include "support/shuffled_executor.h"
#include "tiling/workspace_plan.h"

namespace fa::test {
namespace {

/// FlashAttentionGrad with the tasks in an order of its own.
class ShuffledBackward {
 public:
  ShuffledBackward(const BackwardProblem& problem, Context* context)
      : args_(problem.args()),
        bound_(ops::BindAttentionGrad(args_, problem.options()).value()),
        table_(ops::KernelsOf(*context, bound_.forward.problem.dtype)),
        plan_(tiling::MakeBackwardPlan(bound_.forward.problem, ops::MachineOf(*context, table_))),
        buffers_(bound_, plan_, table_, workspace_plan_) {}

  [[nodiscard]] int32_t tasks() const { return plan_.graph.task_count; }

  void Run(ShuffledExecutor* executor) {
    const GuardedBuffer workspace(workspace_plan_.total_bytes());
    const AttentionArgs forward = ops::ForwardArgs(args_);
    ops::WriteTailGradients(bound_, args_);
    ops::ClearGradientSums(bound_, buffers_, workspace.data());
    ops::BackwardTile tile(bound_, plan_, table_, args_, forward, buffers_, workspace.data());
    const Status status = executor->Run(plan_.graph, core::TaskFunction(tile), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
    ops::WriteGradientSums(bound_, table_, args_, buffers_, workspace.data());
  }

 private:
  AttentionGradArgs args_;
  ops::BoundAttentionGrad bound_;
  const core::kernels::KernelTable& table_;
  tiling::BackwardPlan plan_;
  tiling::WorkspacePlan workspace_plan_;
  ops::BackwardBuffers buffers_;
};

class BackwardTaskOrder : public ::testing::TestWithParam<Isa> {
 protected:
  static void ExpectSameBits(const BackwardProblem& problem, int orders, int least_tasks = 0) {
    Context* context = ContextOf(GetParam(), 3);
    const Status status = problem.Run(context);
    ASSERT_TRUE(status.ok()) << status.message();
    const BackwardOutputs usual = problem.Outputs();
    ShuffledBackward shuffled(problem, context);
    EXPECT_GE(shuffled.tasks(), least_tasks);
    ShuffledExecutor executor(4711);
    for (int order = 0; order < orders; ++order) {
      problem.ForgetOutputs();
      shuffled.Run(&executor);
      EXPECT_TRUE(SameBits(usual, problem.Outputs())) << "order " << order << problem.backward_case();
    }
  }
};

TEST_P(BackwardTaskOrder, OfManyTilesDoesNotMatter) {
  for (const int mode : {1, 3}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      BackwardCase c;
      ForwardCase& f = c.forward;
      f.dtype = dtype;
      f.heads = 4;
      f.heads_kv = 2;
      f.d = f.dv = 8;
      f.lengths = EqualLengths(2, 500, 500);
      f.mask.mode = mode;
      f.sink = true;
      f.pse = PseForm::kRow;
      f.pse_type = reference::PseType::kScaleThenAdd;
      f.pse_broadcast_batch = true;
      ExpectSameBits(BackwardProblem(c), 5, 2 * 4 * 4);
    }
  }
}

TEST_P(BackwardTaskOrder, OfSlopesDoesNotMatter) {
  BackwardCase c;
  c.forward.heads = 2;
  c.forward.lengths = EqualLengths(2, 400, 400);
  c.forward.mask.mode = 3;
  c.forward.pse = PseForm::kSlopes;
  c.forward.pse_type = reference::PseType::kSlopesSqrt;
  ExpectSameBits(BackwardProblem(c), 5, 2 * 2 * 4);
}

TEST_P(BackwardTaskOrder, OfRandomCasesDoesNotMatter) {
  const int cases = FromEnvironment("FA_TEST_CASES", 240) / 8;
  for (int seed = 18001; seed < 18001 + cases; ++seed) {
    ExpectSameBits(BackwardProblem(RandomBackwardCase(static_cast<uint64_t>(seed))), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, BackwardTaskOrder, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
