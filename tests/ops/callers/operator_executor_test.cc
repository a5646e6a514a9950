// Tests every operator on two executors. One uses std::threads, all of which ThreadSanitizer sees, and one uses oneTBB.
// Any order of tasks must give the bits of one thread, without a race.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "support/cases/operator_calls.h"
#include "support/execution/context_on.h"

namespace fa::test {
namespace {

using Case = std::tuple<Isa, ExecutorKind, std::string>;

class OperatorExecutor : public testing::TestWithParam<Case> {};

TEST_P(OperatorExecutor, GivesTheBitsOfOneThread) {
  const auto& [isa, kind, name] = GetParam();
  const OperatorCall call = OperatorOf(name, ValueKind::kNormal);
  call.tensors->ForgetOutputs();  // Scatter does not write all elements, so all runs start with the same contents
  ASSERT_TRUE(call.run(ContextOn(ExecutorKind::kSerial, isa, 1).get()).ok());
  const std::vector<uint32_t> expected = call.tensors->OutputBits();
  const std::unique_ptr<Context> context = ContextOn(kind, isa, 4);
  for (int run = 0; run < 3; ++run) {
    call.tensors->ForgetOutputs();
    ASSERT_TRUE(call.run(context.get()).ok());
    EXPECT_TRUE(call.tensors->OutputBits() == expected) << "run " << run;
  }
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [isa, kind, name] = info.param;
  const char* executor = kind == ExecutorKind::kThreads ? "Threads" : kind == ExecutorKind::kFlow ? "Flow" : "Shuffled";
  return name + "_" + executor + "_" + Name(isa);
}

std::vector<Isa> EveryLevel() {
  std::vector<Isa> levels;
  std::copy_if(AllIsas().begin(), AllIsas().end(), std::back_inserter(levels),
               [](Isa isa) { return Includes(DetectIsa(), isa); });
  return levels;
}

std::vector<Isa> FirstAndLast() {
  if (DetectIsa() == Isa::kPortable) return {Isa::kPortable};
  return {Isa::kPortable, DetectIsa()};
}

// All levels run here. Under a sanitizer, the tests of calls over several ranks run on only two levels (RankLevels).
INSTANTIATE_TEST_SUITE_P(EveryLevel, OperatorExecutor,
                         testing::Combine(testing::ValuesIn(EveryLevel()), testing::Values(ExecutorKind::kThreads),
                                          testing::ValuesIn(OperatorNames())),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(All, OperatorExecutor,
                         testing::Combine(testing::ValuesIn(FirstAndLast()), testing::Values(ExecutorKind::kFlow),
                                          testing::ValuesIn(OperatorNames())),
                         CaseName);

// Operators that sum over keys are left out. A single thread must run their tasks in claim order, because tasks wait
// for earlier ones.
INSTANTIATE_TEST_SUITE_P(AnyOrder, OperatorExecutor,
                         testing::Combine(testing::ValuesIn(FirstAndLast()), testing::Values(ExecutorKind::kShuffled),
                                          testing::Values("Forward", "Backward", "Prompt", "Decode", "SparseForward",
                                                          "Indexer", "Merge", "MergeLse", "Scatter", "Gather",
                                                          "DropoutMask")),
                         CaseName);

}  // namespace
}  // namespace fa::test
