// Tests every operator on an invented machine of two NUMA nodes, for which the context has two arenas of oneTBB. The
// bits must equal those on one thread. After a deadlock a signal ends the program, so that the suite does not hang.
#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/families.h"
#include "support/execution/contexts.h"

namespace fa::test {
namespace {

constexpr unsigned kSecondsToDeadlock = 300;
constexpr uint64_t kFirstSeed = 1001;
constexpr int kDenseCases = 4;

/// Returns a context of four threads on two nodes. hwloc reads HWLOC_SYNTHETIC as the description of the machine.
std::unique_ptr<Context> ContextOfTwoNodes() {
  setenv("HWLOC_SYNTHETIC", "numa:2 core:64 pu:1", 1);
  ContextOptions options;
  options.threads = 4;
  auto context = Context::Create(options);
  unsetenv("HWLOC_SYNTHETIC");
  return context.ok() ? std::move(*context) : nullptr;
}

class TwoArenas : public EveryOperator {
 protected:
  TwoArenas() { alarm(kSecondsToDeadlock); }
  ~TwoArenas() override { alarm(0); }
  void SetUp() override {
    ASSERT_NE(context_, nullptr);
    ASSERT_NE(context_->Describe().find("4 in 2 arena(s)"), std::string::npos) << context_->Describe();
    for (int at = 0; at < kDenseCases; ++at) {
      calls_.push_back(GetParam().make(kFirstSeed + static_cast<uint64_t>(at)));
      alone_.push_back(OutputsOf(calls_.back().get(), ContextOf(context_->isa(), 1)));
    }
  }
  /// Returns whether call number `at` has the same bits in the two arenas as on one thread.
  [[nodiscard]] bool GivesItsBits(int at) const {
    FuzzCall* call = calls_[static_cast<size_t>(at)].get();
    call->TakeSnapshot().Forget();
    call->RestoreInputs();
    return call->Run(context_.get(), {}).ok() &&
           alone_[static_cast<size_t>(at)].FirstDifference(CallOutputs(call)).empty();
  }

  std::unique_ptr<Context> context_ = ContextOfTwoNodes();
  std::vector<std::unique_ptr<FuzzCall>> calls_;
  std::vector<CallOutputs> alone_;
};

TEST_P(TwoArenas, GiveTheBitsOfOneThread) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (int at = 0; at < kDenseCases; ++at) {
      EXPECT_TRUE(GivesItsBits(at)) << calls_[static_cast<size_t>(at)]->Describe();
    }
  }
}

TEST_P(TwoArenas, ServeTasksThatHoldEveryThread) {
  const tbb::global_control two_threads(tbb::global_control::max_allowed_parallelism, 2);
  std::vector<char> good(kDenseCases);
  tbb::parallel_for(
      0, kDenseCases, [&](int at) { good[static_cast<size_t>(at)] = GivesItsBits(at) ? 1 : 0; },
      tbb::simple_partitioner{});
  for (int at = 0; at < kDenseCases; ++at) EXPECT_TRUE(good[static_cast<size_t>(at)]) << at;
}

INSTANTIATE_TEST_SUITE_P(All, TwoArenas, ::testing::ValuesIn(kFamilies), FamilyName);

}  // namespace
}  // namespace fa::test
