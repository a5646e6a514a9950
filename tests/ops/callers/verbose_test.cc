// With FA_VERBOSE=1 every run of an operator prints one line to stderr.
#include "ops/plan/verbose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fa/fa.h"
#include "support/cases/operator_calls.h"

namespace fa {
namespace {

using test::EveryOperator;
using test::OperatorCall;
using test::ValueKind;
using testing::HasSubstr;
using testing::MatchesRegex;

std::unique_ptr<Context> TwoThreads() {
  auto context = Context::Create({.threads = 2, .isa = Isa::kPortable});
  return std::move(*context);
}

/// Runs the call and returns what it wrote to stderr.
std::string Said(const OperatorCall& call, Context* context, bool verbose) {
  ops::SetVerbose(verbose);
  testing::internal::CaptureStderr();
  const Status status = call.run(context);
  std::string text = testing::internal::GetCapturedStderr();
  ops::SetVerbose(false);
  EXPECT_TRUE(status.ok()) << call.name << ": " << status.message();
  return text;
}

TEST(Verbose, EveryOperatorThatIsPlannedSaysOneLine) {
  const auto context = TwoThreads();
  for (const OperatorCall& call : EveryOperator(ValueKind::kNormal)) {
    SCOPED_TRACE(call.name);
    EXPECT_EQ(Said(call, context.get(), /*verbose=*/false), "");
    const std::string text = Said(call, context.get(), /*verbose=*/true);
    if (call.plan == nullptr) {
      EXPECT_EQ(text, "");
      continue;
    }
    const auto plan = call.plan(context.get());
    ASSERT_TRUE(plan.ok());
    const PlanInfo info = plan->info();
    EXPECT_THAT(text, MatchesRegex("fa: [A-Za-z -]+, .*; portable;[^\n]*; [12] threads?; [0-9]+\\.[0-9]+ ms\n"));
    EXPECT_THAT(text, HasSubstr("fa: " + info.op));
    for (const std::string& kernel : info.kernels) EXPECT_THAT(text, HasSubstr(kernel));
  }
}

/// A call with one head and `rows` rows, at most 8.
struct Call {
  std::vector<float> values = std::vector<float>(64, 0.5f), out = values;
  AttentionArgs args;
  explicit Call(int64_t rows) {
    const Dims shape{1, 1, rows, 8}, strides{rows * 8, rows * 8, 8, 1};
    const TensorView view{values.data(), DType::kF32, shape, strides};
    args.q = args.k = args.v = view;
    args.out = {out.data(), DType::kF32, shape, strides};
  }
};

TEST(Verbose, SaysTheMaskAndWhyARunFailed) {
  const auto context = TwoThreads();
  Call call(4);
  const auto plan = PlanFlashAttention(call.args, {.mask = Mask::Causal()}, context.get());
  ASSERT_TRUE(plan.ok());
  ops::SetVerbose(true);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(plan->Run(call.args).ok());
  call.args.out.data = nullptr;
  EXPECT_FALSE(plan->Run(call.args).ok());
  const std::string text = testing::internal::GetCapturedStderr();
  ops::SetVerbose(false);
  EXPECT_THAT(text,
              MatchesRegex("fa: forward, f32: 1 sequences, sq 4, sk 4, .*; causal; portable; .*; 1 thread; .* ms\n"
                           "fa: forward, f32: .*; 1 thread; failed: .*out.*\n"));
}

TEST(Verbose, CountsPackedRowsPastTheLastSequence) {
  const auto context = TwoThreads();
  std::vector<float> values(64, 0.5f), out = values;
  AttentionArgs args;
  args.q = args.k = args.v = View(std::as_const(values).data(), {8, 1, 8});
  args.out = View(out.data(), {8, 1, 8});
  const std::vector<int64_t> lengths = {3, 5};  // wrong: lengths of 8 rows in all, not running sums
  args.cu_q = args.cu_kv = lengths;
  ops::SetVerbose(true);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(FlashAttention(args, {.layout = Layout::kTND}, context.get()).ok());
  const std::string text = testing::internal::GetCapturedStderr();
  ops::SetVerbose(false);
  EXPECT_THAT(text, HasSubstr("2 sequences, sq 2..3, sk 2..3, "));
  EXPECT_THAT(text, HasSubstr("; 3 rows past the last sequence; "));
}

TEST(VerboseDeathTest, TheEnvironmentSwitchesItOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the test runs in a new process, which has not read FA_VERBOSE yet
  const auto run_with = [](const char* value) {
    setenv("FA_VERBOSE", value, 1);
    Call call(4);
    const bool ok = FlashAttention(call.args, {}).ok();
    std::fputs("end\n", stderr);
    std::exit(ok ? 0 : 1);
  };
  EXPECT_EXIT(run_with("1"), testing::ExitedWithCode(0), "fa: forward, f32: .* ms\nend\n");
  EXPECT_EXIT(run_with("0"), testing::ExitedWithCode(0), "^end\n$");
  EXPECT_EXIT(run_with(""), testing::ExitedWithCode(0), "^end\n$");
}

}  // namespace
}  // namespace fa
