// If the tasks of a forward plan run in random valid orders, each on a random worker, they give the bits of a usual
// call. The workspace starts as NaN.
#include <gtest/gtest.h>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/execution/shuffled_plan.h"

namespace fa::test {
namespace {

class ForwardTaskOrder : public ::testing::TestWithParam<Isa> {
 protected:
  static void ExpectSameBits(const ForwardCase& c, int orders, int64_t least_tasks = 0) {
    const ForwardProblem problem(c);
    const ForwardOutputs usual = OutputsOf(problem, ContextOf(GetParam(), 3));
    ExpectBitsInAnyOrder(problem, usual, GetParam(), orders, least_tasks, c);
  }
};

TEST_P(ForwardTaskOrder, OfManyTilesDoesNotMatter) {
  for (const int mode : {1, 3}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      ForwardCase c;
      c.dtype = dtype;
      c.heads = 4;
      c.heads_kv = 2;
      c.lengths = EqualLengths(2, 500, 700);
      c.mask.mode = mode;
      c.sink = true;
      ExpectSameBits(c, 4, 2 * 4 * 3);
    }
  }
}

// The plan cuts the keys of a head into parts. The task that finishes last adds up the results of the parts.
TEST_P(ForwardTaskOrder, OfPartsOfKeysDoesNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ForwardCase c;
    c.dtype = dtype;
    c.heads = 4;
    c.heads_kv = 2;
    c.lengths = EqualLengths(2, 1, 4000);
    ExpectSameBits(c, 8, 2 * 2 * 2);
  }
}

TEST_P(ForwardTaskOrder, OfRandomCasesDoesNotMatter) {
  const int cases = RandomCases(240) / 8;
  for (int seed = 28001; seed < 28001 + cases; ++seed) {
    ExpectSameBits(RandomForwardCase(static_cast<uint64_t>(seed)), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, ForwardTaskOrder, ::testing::ValuesIn(IsaLevels()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace fa::test
