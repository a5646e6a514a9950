#include "fuzz/fuzz_driver.h"

#include <tbb/global_control.h>

#include <chrono>
#include <cstdio>

#include "fuzz/calls/call_outputs.h"
#include "fuzz/calls/moved_tensors.h"
#include "fuzz/crash_note.h"
#include "fuzz/mistakes.h"
#include "support/execution/contexts.h"
#include "support/sanitizer.h"

namespace fa::test {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

// Without this setting, oneTBB would give no more workers than the machine has cores.
const tbb::global_control kFourThreads(tbb::global_control::max_allowed_parallelism, 4);

struct Run {
  int threads = 1;
  WorkspaceFill fill = {};
  bool moved = false;
};

std::ostream& operator<<(std::ostream& out, const Run& run) {
  out << run.threads << " threads, workspace of ";
  run.fill ? out << "bytes " << int{*run.fill} : out << "the context";
  return out << (run.moved ? ", moved tensors" : "");
}

/// Poisons the outputs and runs the call. Returns whether it succeeds and all memory outside the outputs is unchanged.
AssertionResult RunsCleanly(FuzzCall* call, Context* context, const Run& run, MovedTensors* moved) {
  const Snapshot before = call->TakeSnapshot();
  before.Forget();
  call->RestoreInputs();
  moved->TakeSnapshot();
  const Status status = call->Run(context, run.fill);
  if (!status.ok()) return AssertionFailure() << status.message();
  if (before.FirstChange() >= 0) return AssertionFailure() << "byte " << before.FirstChange() << " was overwritten";
  if (moved->FirstChange() >= 0) {
    return AssertionFailure() << "byte " << moved->FirstChange() << " of a moved tensor was overwritten";
  }
  return AssertionSuccess();
}

AssertionResult GivesTheSameBits(FuzzCall* call, Isa isa, RandomChoices* random) {
  std::optional<CallOutputs> first;
  const auto many = static_cast<int>(random->Pick(2, 4));
  const auto fill = static_cast<uint8_t>(random->Pick(0, 255));
  for (const Run& run : {Run{.threads = 1, .fill = 0xFF},
                         {.threads = many},
                         {.threads = many, .fill = 0x7F},
                         {.threads = 5 - many, .fill = fill, .moved = true}}) {
    MovedTensors moved;
    if (run.moved && call->may_move()) {
      for (const TensorField& field : call->Tensors()) {
        if (!field.absent() && random->Pick(0, 3) > 0) moved.Move(field, random);
      }
    }
    AssertionResult result = RunsCleanly(call, ContextOf(isa, run.threads), run, &moved);
    const CallOutputs outputs(call);
    call->Restore();
    if (result && !first) result = call->MatchesReference();
    if (!first) first = outputs;
    const std::string difference = first->FirstDifference(outputs);
    if (result && !difference.empty()) result = AssertionFailure() << "other bits in " << difference;
    if (!result) return result << "\n " << run;
  }
  return AssertionSuccess();
}

/// Makes all elements of one input equal along one dimension. The bits must be the same with a stride of 0 and with
/// copies.
AssertionResult BroadcastsByStride(FuzzCall* call, Isa isa, RandomChoices* random) {
  std::vector<std::pair<TensorField, int>> choices;
  for (const TensorField& field : call->Tensors()) {
    if (field.absent() || field.is_output()) continue;
    for (int x = 0; x + 1 < field.view().shape.rank(); ++x) {
      if (field.view().shape[x] > 1) choices.emplace_back(field, x);
    }
  }
  if (choices.empty()) return AssertionSuccess();
  const auto [field, dimension] = choices[static_cast<size_t>(random->Pick(0, std::ssize(choices) - 1))];
  std::optional<Status> status;
  std::optional<CallOutputs> outputs;
  for (const bool by_stride : {false, true}) {
    MovedTensors moved;
    moved.Broadcast(field, dimension, by_stride, random);
    const Snapshot before = call->TakeSnapshot();
    before.Forget();
    call->RestoreInputs();
    moved.TakeSnapshot();
    const Status now = call->Run(ContextOf(isa, 2), 0xFF);
    const CallOutputs got(call);
    call->Restore();
    const auto failure = [&] {
      return AssertionFailure() << field.name() << ".stride[" << dimension << "]=" << (by_stride ? 0 : 1) << ": ";
    };
    if (before.FirstChange() >= 0 || moved.FirstChange() >= 0) return failure() << "a buffer was overwritten";
    if (!outputs) {
      status = now;
      outputs = got;
    } else if (now.message() != status->message()) {
      return failure() << now.message() << "; by copies: " << status->message();
    } else if (const std::string difference = outputs->FirstDifference(got); !difference.empty()) {
      return failure() << "other bits in " << difference << " than by copies";
    }
  }
  return AssertionSuccess();
}

AssertionResult SurvivesAMistake(FuzzCall* call, uint64_t seed, Isa isa, RandomChoices* random, int64_t* refused) {
  const Snapshot before = call->TakeSnapshot();
  before.Forget();
  call->RestoreInputs();
  const CallOutputs untouched(call);
  Status status;
  std::string what;
  {
    const Mistake mistake(call, random);
    what = mistake.what();
    NoteForACrash("FA_FUZZ_SEED=" + std::to_string(seed) + " " + what + " of " + call->Describe());
    status = call->Run(ContextOf(isa, 2), random->Pick(0, 1) == 0 ? WorkspaceFill(0xFF) : WorkspaceFill());
  }
  if (before.FirstChange() >= 0) {
    return AssertionFailure() << what << ": byte " << before.FirstChange() << " of a buffer was overwritten";
  }
  if (status.ok()) return AssertionSuccess();
  ++*refused;
  if (status.code() != StatusCode::kInvalidArgument) return AssertionFailure() << what << ": " << status.message();
  const std::string difference = untouched.FirstDifference(CallOutputs(call));
  if (!difference.empty()) return AssertionFailure() << what << ": refused, but wrote " << difference;
  return AssertionSuccess();
}

AssertionResult Survives(FuzzCall* call, uint64_t seed, int64_t* refused) {
  constexpr int kMistakes = 4;
  for (const Isa isa : IsaLevels()) {
    RandomChoices random(seed);
    AssertionResult result = GivesTheSameBits(call, isa, &random);
    if (result && call->may_move() && random.Pick(0, 2) == 0) result = BroadcastsByStride(call, isa, &random);
    for (int mistake = 0; result && mistake < kMistakes; ++mistake) {
      result = SurvivesAMistake(call, seed, isa, &random, refused);
    }
    if (!result) return result << ", " << IsaName(isa);
  }
  return AssertionSuccess();
}

}  // namespace

void Fuzz(const Family& family, int usual) {
  using Clock = std::chrono::steady_clock;
  const int first = FromEnvironment("FA_FUZZ_SEED", 1), seconds = FromEnvironment("FA_FUZZ_SECONDS", 0);
  const int cases = FromEnvironment("FA_FUZZ_CASES", Sanitized() ? usual / 4 : usual);
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
  int64_t refused = 0;
  int done = 0;
  for (; seconds > 0 ? Clock::now() < end : done < cases; ++done) {
    const auto seed = static_cast<uint64_t>(first + done);
    const std::unique_ptr<FuzzCall> call = family.make(seed);
    const std::string name = "FA_FUZZ_SEED=" + std::to_string(seed) + " " + call->Describe();
    NoteForACrash(name);
    ASSERT_TRUE(Survives(call.get(), seed, &refused)) << "\n " << name;
  }
  std::printf("FA_FUZZ_SEED=%d FA_FUZZ_CASES=%d: %s, %lld mistakes refused\n", first, done, family.name,
              static_cast<long long>(refused));
  if (cases >= 20 || seconds > 0) {
    EXPECT_GT(refused, 0) << "no mistake was one";
  }
}

}  // namespace fa::test
