// Several callers use one context at once, each with another operator or case. Each gets the bits that it gets alone.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/families.h"
#include "support/execution/contexts.h"
#include "support/execution/many_callers.h"

namespace fa::test {
namespace {

/// The call of one caller, and the outputs of the call when it runs alone.
struct Caller {
  std::unique_ptr<FuzzCall> call;
  CallOutputs alone;
  Caller(const Family& family, uint64_t seed)
      : call(family.make(seed)), alone(OutputsOf(call.get(), ContextOf(DetectIsa(), 1))) {}
};

void ExpectTheBitsOfEachAlone(std::vector<Caller> callers) {
  constexpr int kRepeats = 3;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  OnThreads([&](int caller) {
    const Caller& own = callers[static_cast<size_t>(caller)];
    bool same = true;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      own.call->TakeSnapshot().Forget();
      own.call->RestoreInputs();
      same = same && own.call->Run(context, {}).ok() && own.alone.FirstDifference(CallOutputs(own.call.get())).empty();
    }
    good[static_cast<size_t>(caller)] = same ? 1 : 0;
  });
  ExpectAll(good);
}

class Callers : public EveryOperator {};

TEST_P(Callers, OfOneOperatorShareAContext) {
  std::vector<Caller> callers;
  for (uint64_t caller = 0; caller < kCallers; ++caller) callers.emplace_back(GetParam(), 701 + caller);
  ExpectTheBitsOfEachAlone(std::move(callers));
}

INSTANTIATE_TEST_SUITE_P(All, Callers, ::testing::ValuesIn(kFamilies), FamilyName);

TEST(CallersOfAllOperators, ShareAContext) {
  for (size_t first = 0; first < std::size(kFamilies); first += kCallers) {
    std::vector<Caller> callers;
    for (size_t caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back(kFamilies[(first + caller) % std::size(kFamilies)], 801 + caller);
    }
    ExpectTheBitsOfEachAlone(std::move(callers));
  }
}

}  // namespace
}  // namespace fa::test
