// If the tasks of a backward plan run in random valid orders, each on a random worker, they give the bits of a usual
// call. The workspace starts as NaN.
#include <gtest/gtest.h>

#include "support/cases/backward_problem.h"
#include "support/cases/random_backward_case.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"
#include "support/execution/shuffled_plan.h"

namespace fa::test {
namespace {

class BackwardTaskOrder : public ::testing::TestWithParam<Isa> {
 protected:
  static void ExpectSameBits(const BackwardProblem& problem, int orders, int64_t least_tasks = 0) {
    const Status status = problem.Run(ContextOf(GetParam(), 3));
    ASSERT_TRUE(status.ok()) << status.message();
    const BackwardOutputs usual = problem.Outputs();
    ExpectBitsInAnyOrder(problem, usual, GetParam(), orders, least_tasks, problem.backward_case());
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
