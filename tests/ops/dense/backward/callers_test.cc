// Several callers call at once: threads, oneTBB tasks or OpenMP regions, on one shared context or on one context each.
// Each caller must get the bits that it gets alone.
#include <gtest/gtest.h>
#include <tbb/parallel_for.h>

#include <memory>

#include "support/cases/random_backward_case.h"
#include "support/compare/compare_gradients.h"
#include "support/execution/contexts.h"
#include "support/execution/many_callers.h"

namespace fa::test {
namespace {

constexpr int kRepeats = 6;

/// The problem of each caller, and its gradients when it calls alone.
class Callers {
 public:
  Callers() {
    for (int caller = 0; caller < kCallers; ++caller) {
      problems_.push_back(std::make_unique<BackwardProblem>(RandomBackwardCase(static_cast<uint64_t>(20001 + caller))));
      alone_.push_back(OutputsOf(*problems_.back(), ContextOf(DetectIsa(), 1)));
    }
  }
  /// Makes the caller's calls on any thread. Returns false if a status or a bit is wrong.
  [[nodiscard]] bool Call(int caller, Context* context) const {
    const BackwardProblem& problem = *problems_[static_cast<size_t>(caller)];
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      problem.ForgetOutputs();
      if (!problem.Run(context).ok()) return false;
      if (!SameBits(alone_[static_cast<size_t>(caller)], problem.Outputs())) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<BackwardProblem>> problems_;
  std::vector<BackwardOutputs> alone_;
};

TEST(BackwardCallers, ThreadsShareAContext) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  OnThreads([&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(BackwardCallers, ThreadsWithContextsOfTheirOwn) {
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

TEST(BackwardCallers, OneTbbTasks) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  tbb::parallel_for(0, kCallers,
                    [&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(BackwardCallers, OpenMpRegion) {
  const Callers callers;
  Context* context = ContextOf(DetectIsa(), 2);
  GoodCallers good(kCallers);
  InOpenMpRegion([&](int caller) { good[static_cast<size_t>(caller)] = callers.Call(caller, context) ? 1 : 0; });
  ExpectAll(good);
}

TEST(BackwardCallers, OnePlanRunByManyThreads) {
  BackwardCase c;
  c.forward.heads = 3;
  c.forward.heads_kv = 1;
  c.forward.lengths = EqualLengths(2, 200, 300);
  c.forward.mask.mode = 3;
  const BackwardProblem planned(c);
  const auto plan = planned.MakePlan(ContextOf(DetectIsa(), 2));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  GoodCallers good(kCallers);
  OnThreads([&](int caller) {
    BackwardCase own = c;
    own.forward.seed = 50 + static_cast<uint64_t>(caller);
    const BackwardProblem problem(own);
    const BackwardOutputs alone = OutputsOf(problem, ContextOf(DetectIsa(), 1));
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

}  // namespace
}  // namespace fa::test
