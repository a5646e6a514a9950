// Makes calls while memory is short. In turn, each allocation of a call fails, alone or with all later ones. The call
// must throw nothing and return the right status. A later call with memory must compute.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/context/context_impl.h"
#include "core/machine/topology.h"
#include "core/run/guarded_call.h"
#include "fa/context.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "ops/self_check/self_check.h"
#include "support/allocation_counter.h"
#include "support/cases/operator_calls.h"
#include "support/hang_alarm.h"

namespace fa::test {
namespace {

constexpr int64_t kMostPlaces = 5000;
constexpr unsigned kSecondsToSpin = 300;

enum Verdict { kFine = 0, kNoPlaceLeft, kThrown, kWrongStatus, kLaterCallFails, kWrongBits };

/// Makes a call whose allocation number `place` fails, then two calls with memory. If a call hangs, a signal ends the
/// process.
Verdict CallShortOfMemory(const OperatorCall& call, Context* context, int64_t place, bool all_later) {
  alarm(HangSeconds(kSecondsToSpin));
  Status status;
  int64_t failed = 0;
  call.tensors->ForgetOutputs();
  try {
    const FailingAllocations failing(place, all_later);
    status = call.run(context);
    failed = failing.failed();
  } catch (...) {
    return kThrown;
  }
  const std::vector<uint32_t> first = call.tensors->OutputBits();
  // Some allocations only make a call faster, so the call may succeed without them.
  if (!status.ok() && (status.code() != StatusCode::kOutOfMemory || failed == 0)) return kWrongStatus;
  if (!status.ok() && status.message().rfind("out of memory", 0) != 0) return kWrongStatus;
  if (!call.run(context).ok()) return kLaterCallFails;
  const std::vector<uint32_t> second = call.tensors->OutputBits();
  call.tensors->ForgetOutputs();
  if (!call.run(context).ok()) return kLaterCallFails;
  if (call.tensors->OutputBits() != second || (status.ok() && first != second)) return kWrongBits;
  return failed == 0 ? kNoPlaceLeft : kFine;
}

class MemoryShortage : public testing::TestWithParam<bool> {
 protected:
  MemoryShortage() { alarm(HangSeconds(kSecondsToSpin)); }
  ~MemoryShortage() override { alarm(0); }

  /// Makes the call in new processes, as the first call of each. The level of these processes is `isa`, and their
  /// default context has two threads. In process number i, counted from 0, allocation 1 + i * step fails. `processes`
  /// counts the processes.
  void FirstCalls(const OperatorCall& call, Isa isa, int64_t step, int64_t* processes) {
    int64_t place = 1;
    *processes = 0;
    for (int verdict = kFine; verdict == kFine; place += step) {
      ASSERT_LT(++*processes, kMostPlaces);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        setenv("FA_NUM_THREADS", "2", /*overwrite=*/1);
        setenv("FA_FORCE_ISA", Name(isa), /*overwrite=*/1);
        _exit(CallShortOfMemory(call, nullptr, place, GetParam()));
      }
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status)) << "place " << place << ": signal " << WTERMSIG(status);
      verdict = WEXITSTATUS(status);
      ASSERT_LE(verdict, kNoPlaceLeft) << Name(isa) << ", place " << place;
    }
  }
};

// The first call of a process makes the default context and starts oneTBB. The children must come from a process that
// has done neither. So only the tests of first calls may run before this one.
TEST_P(MemoryShortage, InTheFirstCallOfAProcess) {
  // If the instruction-set level is unproven (docs/kernels.md), the first call also tests the level's kernels. Another
  // test covers that, so this one then uses the portable level.
  const Isa isa = ops::IsUnproven(DetectIsa()) ? Isa::kPortable : DetectIsa();
  int64_t processes = 0;
  ASSERT_NO_FATAL_FAILURE(FirstCalls(OperatorOf("Forward", ValueKind::kNormal), isa, 1, &processes));
  EXPECT_GT(processes, 20);
}

/// Returns the same call with a new context instead of the default context. The first call makes this context. The
/// context treats the highest level of this CPU as unproven.
OperatorCall AtAnUnprovenLevel(OperatorCall call) {
  call.run = [run = call.run, context = std::make_shared<std::unique_ptr<Context>>()](Context* /*default*/) {
    const Status made = core::GuardedCall("context", [&]() -> Status {
      if (*context != nullptr) return Status::Ok();
      core::Topology topology = core::Topology::Detect();
      const Result<ContextSettings> settings =
          ops::ResolveHere({}, ContextEnvironment::Read(), topology, [](Isa isa) { return isa == DetectIsa(); });
      if (!settings.ok()) return settings.status();
      *context = Context::Impl::ToContext(std::make_unique<Context::Impl>(*settings, std::move(topology)));
      return Status::Ok();
    });
    return made.ok() ? run(context->get()) : made;
  };
  return call;
}

// The children must come from a process that has made no context, as in InTheFirstCallOfAProcess.
TEST_P(MemoryShortage, InTheFirstCallOfAProcessAtAnUnprovenLevel) {
  constexpr int64_t kStep = 97;  // a call makes thousands of allocations, so only every kStep-th fails
  const OperatorCall call = AtAnUnprovenLevel(OperatorOf("Forward", ValueKind::kNormal));
  int64_t processes = 0;
  ASSERT_NO_FATAL_FAILURE(FirstCalls(call, DetectIsa(), kStep, &processes));
  EXPECT_GT(processes, 10);
}

// If a trial of a level lacks memory, the level must not count as wrong.
TEST_P(MemoryShortage, InTheTrialOfALevel) {
  constexpr int64_t kStep = 97;  // a trial makes thousands of allocations, so only every kStep-th fails
  int64_t place = 1;
  for (int64_t failed = 1; failed > 0; place += kStep) {
    bool out_of_memory = false;
    ops::ProvenIsa proven;
    {
      const FailingAllocations failing(place, GetParam());
      try {
        proven = ops::Prove(DetectIsa(), [](Isa isa) { return isa == DetectIsa(); });
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
      failed = failing.failed();
    }
    // Some allocations only make a trial faster, so it may succeed without them.
    EXPECT_TRUE(failed > 0 || !out_of_memory) << "place " << place;
    EXPECT_EQ(proven.wrong, "") << "place " << place;
  }
  EXPECT_GT(place, 10 * kStep);
}

TEST_P(MemoryShortage, InAnyOperator) {
  ContextOptions options;
  options.threads = 2;
  auto context = Context::Create(options);
  ASSERT_TRUE(context.ok());
  for (const OperatorCall& call : EveryOperator(ValueKind::kNormal)) {
    int64_t place = 1;
    for (Verdict verdict = kFine; verdict == kFine; ++place) {
      ASSERT_LT(place, kMostPlaces);
      verdict = CallShortOfMemory(call, context->get(), place, GetParam());
      ASSERT_LE(verdict, kNoPlaceLeft) << call.name << ", place " << place;
    }
    EXPECT_GT(place, 2) << call.name;
  }
}

TEST_P(MemoryShortage, InTheFirstCallOfAContext) {
  const OperatorCall call = OperatorOf("Backward", ValueKind::kNormal);
  ContextOptions options;
  options.threads = 3;
  int64_t place = 1;
  for (Verdict verdict = kFine; verdict == kFine; ++place) {
    ASSERT_LT(place, kMostPlaces);
    auto context = Context::Create(options);
    ASSERT_TRUE(context.ok());
    verdict = CallShortOfMemory(call, context->get(), place, GetParam());
    ASSERT_LE(verdict, kNoPlaceLeft) << "place " << place;
  }
  EXPECT_GT(place, 10);
}

TEST_P(MemoryShortage, InTheMakingOfAContext) {
  // Making the first context tests the kernels of an unproven level. Later contexts do not test them again.
  ASSERT_TRUE(Context::Create().ok());
  int64_t place = 1;
  for (int64_t failed = 1; failed > 0; ++place) {
    ASSERT_LT(place, kMostPlaces);
    StatusCode code = StatusCode::kInternal;
    {
      const FailingAllocations failing(place, GetParam());
      code = Context::Create().status().code();
      failed = failing.failed();
    }
    EXPECT_EQ(code, failed > 0 ? StatusCode::kOutOfMemory : StatusCode::kOk) << "place " << place;
  }
  EXPECT_GT(place, 2);
}

TEST_P(MemoryShortage, InTheMakingOfAStatus) {
  const std::string long_text(1000, 'x');
  const FailingAllocations failing(1, GetParam());
  const Status status = Status::InvalidArgument(long_text);
  const Status copy = status;
  const bool says_so = copy.code() == StatusCode::kOutOfMemory && copy.message() == "out of memory";
  EXPECT_TRUE(says_so);
}

TEST_P(MemoryShortage, InTheMessageOfAWorkspace) {
  Workspace workspace;
  Status status;
  {
    const FailingAllocations failing(1, GetParam());
    status = workspace.Reserve(~size_t{0});
  }
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
}

INSTANTIATE_TEST_SUITE_P(Allocations, MemoryShortage, testing::Bool(),
                         [](const auto& info) { return info.param ? "AllFromOneOn" : "One"; });

}  // namespace
}  // namespace fa::test
