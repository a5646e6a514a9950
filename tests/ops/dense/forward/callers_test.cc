// Several callers call at once: threads, oneTBB tasks or OpenMP regions, on one shared context or on one context each.
// Each caller must get the bits that it gets alone.
#include <gtest/gtest.h>
#include <tbb/parallel_for.h>

#include <memory>

#include "support/cases/random_forward_case.h"
#include "support/compare/compare.h"
#include "support/execution/contexts.h"
#include "support/execution/many_callers.h"

namespace fa::test {
namespace {

constexpr int kRepeats = 8;

/// The problem of each caller, and its outputs when it calls alone.
class Callers {
 public:
  explicit Callers(Isa isa = DetectIsa()) {
    for (int caller = 0; caller < kCallers; ++caller) {
      problems_.push_back(std::make_unique<ForwardProblem>(RandomForwardCase(static_cast<uint64_t>(20001 + caller))));
      alone_.push_back(OutputsOf(*problems_.back(), ContextOf(isa, 1)));
      problems_.back()->ForgetOutputs();
    }
  }
  /// Makes the caller's calls on any thread. Returns false if a status or a bit is wrong.
  [[nodiscard]] bool Call(int caller, Context* context) const {
    const ForwardProblem& problem = *problems_[static_cast<size_t>(caller)];
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      problem.ForgetOutputs();
      if (!problem.Run(context).ok()) return false;
      if (!SameBits(alone_[static_cast<size_t>(caller)], problem.Outputs())) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<ForwardProblem>> problems_;
  std::vector<ForwardOutputs> alone_;
};

TEST(ForwardCallers, ThreadsShareAContext) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  OnThreads([&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(ForwardCallers, ThreadsShareTheDefaultContext) {
  const Callers callers(Context::Default().isa());
  GoodCallers good(kCallers);
  OnThreads([&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, nullptr) ? 1 : 0; });
  ExpectAll(good);
}

TEST(ForwardCallers, ThreadsWithContextsOfTheirOwn) {
  const Callers callers;
  GoodCallers good(kCallers);
  OnThreads([&](int caller) {
    ContextOptions options;
    options.isa = DetectIsa();
    options.threads = 1 + caller % 3;
    const auto context = Context::Create(options);
    good[static_cast<size_t>(caller)] = context.ok() && callers.Call(caller, context.value().get()) ? 1 : 0;
  });
  ExpectAll(good);
}

TEST(ForwardCallers, OneTbbTasks) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  tbb::parallel_for(0, kCallers,
                    [&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(ForwardCallers, OpenMpRegion) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  InOpenMpRegion([&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(ForwardCallers, OnePlanRunByManyThreads) {
  ForwardCase c;
  c.heads = 3;
  c.heads_kv = 1;
  c.lengths = EqualLengths(2, 200, 300);
  c.mask.mode = 3;
  const ForwardProblem planned(c);
  const auto plan = planned.MakePlan(ContextOf(DetectIsa(), 2));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  GoodCallers good(kCallers);
  OnThreads([&](int caller) {
    ForwardCase own = c;
    own.seed = 50 + static_cast<uint64_t>(caller);
    const ForwardProblem problem(own);
    const ForwardOutputs alone = OutputsOf(problem, ContextOf(DetectIsa(), 1));
    Workspace workspace;
    bool same = true;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      problem.ForgetOutputs();
      same = same && plan->Run(problem.args(), workspace).ok() && SameBits(alone, problem.Outputs());
    }
    good[static_cast<size_t>(caller)] = same ? 1 : 0;
  });
  ExpectAll(good);
}

// The plan cuts the keys of a head into parts. The task that finishes last adds up the results of the parts, and resets
// the counters for the next run.
TEST(ForwardCallers, OnePlanWithPartsOfKeysForManyRuns) {
  ForwardCase c;
  c.heads = 4;
  c.heads_kv = 2;
  c.lengths = EqualLengths(2, 1, 4000);
  const ForwardProblem problem(c);
  const auto plan = problem.MakePlan(ContextOf(DetectIsa(), 3));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const ForwardOutputs alone = OutputsOf(problem, ContextOf(DetectIsa(), 1));
  Workspace workspace;
  for (int run = 0; run < 50; ++run) {
    problem.ForgetOutputs();
    ASSERT_TRUE(plan->Run(problem.args(), workspace).ok());
    ASSERT_TRUE(SameBits(alone, problem.Outputs())) << run;
  }
}

}  // namespace
}  // namespace fa::test
