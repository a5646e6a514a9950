// Programs may have their own floating-point settings. No float holds the scale of this test exactly. The scale must be
// rounded as under the default settings, so that every operator gives the same bits. After the call the program has its
// settings again.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "aclnn/calls/operator_call.h"
#include "support/fp_control.h"

namespace fa::test {
namespace {

class FpEnvironment : public ::testing::TestWithParam<Family> {};

TEST_P(FpEnvironment, OfTheProgramChangesNoBit) {
  OperatorCall call(GetParam());
  std::vector<std::byte> expected;
  for (const FpControl& control : kFpControls) {
    call.ForgetResults();
    aclError error = ACL_SUCCESS;
    uint32_t after = 0;
    {
      const CallersFpControl callers(control);
      error = call.Run(nullptr);
      after = ReadFpControl();
    }
    ASSERT_EQ(error, ACL_SUCCESS) << control.name << ": " << aclGetRecentErrMsg();
    EXPECT_EQ(after, control.bits) << control.name;
    if (expected.empty()) expected = call.Results();
    EXPECT_TRUE(call.Results() == expected) << control.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FpEnvironment, ::testing::ValuesIn(AllFamilies()),
                         [](const auto& param) { return Name(param.param); });

}  // namespace
}  // namespace fa::test
