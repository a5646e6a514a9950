// Callers with their own floating-point settings get the same bits as other callers, on any number of threads. After a
// call the caller has its settings and flags again.

#include "core/fp_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fa/context.h"
#include "support/cases/operator_calls.h"
#include "support/fp_control.h"

namespace fa::test {
namespace {

TEST(FpEnvironment, IsTheLibrarysOwnAndThenTheCallersAgain) {
  const uint32_t own = kFpControls[0].bits;
  for (const FpControl& control : kFpControls) {
    uint32_t inside = 0, after = 0;
    {
      const CallersFpControl callers(control);
      {
        const core::FpEnvironment environment;
        inside = ReadFpControl();
      }
      after = ReadFpControl();
    }
    EXPECT_EQ(inside, own) << control.name;
    EXPECT_EQ(after, control.bits) << control.name;
  }
}

TEST(FpEnvironment, DropsTheFlagsOfTheLibrarysArithmetic) {
  const uint32_t before = ReadFpControl();
  {
    const core::FpEnvironment environment;
    volatile float tiny = 1e-38f;
    tiny = tiny * tiny;
  }
  EXPECT_EQ(ReadFpControl(), before);
}

class EveryOperatorTest : public testing::TestWithParam<Isa> {};

// Each setting gets new contexts, because oneTBB's arenas keep the settings of the thread that used them first.
TEST_P(EveryOperatorTest, GivesTheBitsOfADefaultCallerUnderAnySettings) {
  const std::vector<OperatorCall> calls = EveryOperator(ValueKind::kDenormal);
  std::map<std::string, std::vector<uint32_t>> expected;
  ContextOptions options;
  options.isa = GetParam();
  for (const FpControl& control : kFpControls) {
    for (options.threads = 1; options.threads <= 4; ++options.threads) {
      SCOPED_TRACE(std::string(control.name) + ", " + std::to_string(options.threads) + " threads");
      auto context = Context::Create(options);
      ASSERT_TRUE(context.ok()) << context.status().message();
      for (const OperatorCall& call : calls) {
        call.tensors->ForgetOutputs();
        Status status;
        uint32_t after = 0;
        {
          const CallersFpControl callers(control);
          status = call.run(context->get());
          after = ReadFpControl();
        }
        ASSERT_TRUE(status.ok()) << call.name << ": " << status.message();
        EXPECT_EQ(after, control.bits) << call.name;
        const auto [entry, first] = expected.try_emplace(call.name, call.tensors->OutputBits());
        EXPECT_TRUE(call.tensors->OutputBits() == entry->second) << call.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, EveryOperatorTest, testing::Values(Isa::kPortable, DetectIsa()));

}  // namespace
}  // namespace fa::test
