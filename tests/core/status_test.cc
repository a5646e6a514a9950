#include "fa/status.h"

#include <gtest/gtest.h>

#include <utility>

namespace fa {
namespace {

TEST(ResultDeathTest, TheValueOfAnErrorIsAnAssertion) {
#ifdef NDEBUG
  GTEST_SKIP() << "no assertions in this build";
#else
  Result<int> failed = Status::Internal("no value");
  const Result<int>& seen = failed;
  EXPECT_DEATH(static_cast<void>(failed.value()), "ok\\(\\)");
  EXPECT_DEATH(static_cast<void>(*failed), "ok\\(\\)");
  EXPECT_DEATH(static_cast<void>(*seen), "ok\\(\\)");
  EXPECT_DEATH(static_cast<void>(std::move(failed).value()), "ok\\(\\)");
#endif
}

}  // namespace
}  // namespace fa
