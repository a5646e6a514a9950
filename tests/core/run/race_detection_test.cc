// ThreadSanitizer reports a race between tasks on both executors, and reports nothing if an edge orders the tasks. The
// suppressions are the same as in the other tests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace fa::core {
namespace {

constexpr int kExitOfARace = 66;  // set by TSAN_OPTIONS below; the program itself returns 0, 1 or 2

struct Outcome {
  int exit_code;
  std::string report;
};

Outcome RunPlanted(const std::string& mode) {
  const std::string command =
      "TSAN_OPTIONS='suppressions=" FA_TSAN_SUPPRESSIONS " exitcode=66' '" FA_PLANTED_RACE "' " + mode + " 2>&1";
  Outcome outcome{-1, {}};
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char part[4096];
  while (const size_t got = fread(part, 1, sizeof part, pipe)) outcome.report.append(part, got);
  const int result = pclose(pipe);
  outcome.exit_code = WIFEXITED(result) ? WEXITSTATUS(result) : -1;
  return outcome;
}

/// Expects a report of a race that contains `where`.
void ExpectRace(const std::string& mode, const std::string& where) {
  const Outcome outcome = RunPlanted(mode);
  EXPECT_EQ(outcome.exit_code, kExitOfARace);
  EXPECT_THAT(outcome.report, testing::HasSubstr("WARNING: ThreadSanitizer: data race"));
  EXPECT_THAT(outcome.report, testing::HasSubstr(where));
}

void ExpectQuiet(const std::string& mode) {
  const Outcome outcome = RunPlanted(mode);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.report;
}

TEST(RaceDetection, ReportsARaceBetweenTasksOnTheFlowGraph) { ExpectRace("flow", "RunTwoWriters"); }
TEST(RaceDetection, ReportsARaceBetweenTasksOnThreads) { ExpectRace("threads", "RunTwoWriters"); }
TEST(RaceDetection, IsQuietWhereAnEdgeOrdersTheTasks) { ExpectQuiet("ordered"); }

// "tile-flow" runs the tiles of the backward without their edges.
TEST(RaceDetection, ReportsARaceBetweenTilesOnTheFlowGraph) { ExpectRace("tile-flow", "fa::ops::"); }
TEST(RaceDetection, ReportsARaceBetweenTilesOnThreads) { ExpectRace("tile-threads", "fa::ops::"); }
TEST(RaceDetection, IsQuietWhereEdgesOrderTheTiles) { ExpectQuiet("tile-ordered"); }

}  // namespace
}  // namespace fa::core
