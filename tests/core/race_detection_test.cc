// Shows that ThreadSanitizer, with the suppressions that the other tests run under, reports a race between tasks on
// both executors, and reports nothing once an edge orders them.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

namespace fa::core {
namespace {

constexpr int kExitOfARace = 66;  // set by TSAN_OPTIONS below; the program itself returns 0, 1 or 2

int ExitCode(const std::string& mode) {
  const std::string command =
      "TSAN_OPTIONS='suppressions=" FA_TSAN_SUPPRESSIONS " exitcode=66' '" FA_PLANTED_RACE "' " + mode;
  const int result = std::system(command.c_str());
  return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

TEST(RaceDetection, ReportsARaceBetweenTasksOnTheFlowGraph) { EXPECT_EQ(ExitCode("flow"), kExitOfARace); }
TEST(RaceDetection, ReportsARaceBetweenTasksOnThreads) { EXPECT_EQ(ExitCode("threads"), kExitOfARace); }
TEST(RaceDetection, IsQuietWhereAnEdgeOrdersTheTasks) { EXPECT_EQ(ExitCode("ordered"), 0); }

}  // namespace
}  // namespace fa::core
