// A signal to mpirun while rank 0 of fa-mpi has files that are not yet published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/execution/child_process.h"
#include "tools/cli_mpi_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

using Clock = std::chrono::steady_clock;

pid_t StartRanks(const std::string& arguments) {
  const std::string line = std::string("exec env ") + kRanksEnvironment + " " + MpiCommand(2) + " " + arguments +
                           " </dev/null >/dev/null 2>/dev/null";
  const pid_t pid = fork();
  if (pid != 0) return pid;
  execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  _exit(127);
}

/// Waits for a file NAME.PID-N.part and stops the process of that number. @return 0 where there was none in time
pid_t StopTheWriter(const ScratchFolder& folder) {
  const auto deadline = Clock::now() + std::chrono::seconds(kWatchdogSeconds);
  while (Clock::now() < deadline) {
    for (const std::string& name : folder.Names()) {
      if (!name.ends_with(".part")) continue;
      const size_t from = name.find(".npy.") + 5;
      const pid_t writer = std::atoi(name.substr(from, name.find('-', from) - from).c_str());
      if (writer > 1 && kill(writer, SIGSTOP) == 0) return writer;
    }
  }
  return 0;
}

/// A call of two ranks with four outputs.
class RanksUnderSignals : public ::testing::TestWithParam<int> {
 protected:
  RanksUnderSignals() : before_(call_.scratch().Names()), all_(before_) {
    for (const char* output : {"lse", "out", "softmax-max", "softmax-sum"}) {
      all_.push_back(std::string("new_") + output + ".npy");
      words_ += std::string(" --") + output + " '" + call_.scratch().Path(all_.back()) + "'";
    }
  }
  /// Expects that mpirun ends, and not as if all were well.
  static void ExpectAnEnd(pid_t mpirun) {
    int status = 0;
    ASSERT_TRUE(WaitForChild(mpirun, &status));
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_NE(status, SIGALRM) << "mpirun hangs";
  }

  ForwardCall call_{"BNSD", {.heads = 8, .heads_kv = 1, .d = 1, .dv = 64, .lengths = {.sq = {4096}, .sk = {1}}}};
  std::string words_ = "run forward" + call_.flags;
  std::vector<std::string> before_, all_;
};

TEST_P(RanksUnderSignals, TheWriterLeavesNothing) {
  const pid_t mpirun = StartRanks(words_);
  ASSERT_GT(mpirun, 0);
  const pid_t writer = StopTheWriter(call_.scratch());
  ASSERT_GT(writer, 0);
  EXPECT_EQ(kill(writer, GetParam()), 0);  // it comes when the process goes on, before anything else does
  EXPECT_EQ(kill(writer, SIGCONT), 0);
  ExpectAnEnd(mpirun);
  EXPECT_EQ(call_.scratch().Names(), before_);
}

// mpirun lets a stopped process go on before it passes the signal on.
TEST_P(RanksUnderSignals, MpirunLeavesAllOrNothing) {
  const pid_t mpirun = StartRanks(words_);
  ASSERT_GT(mpirun, 0);
  EXPECT_GT(StopTheWriter(call_.scratch()), 0);
  EXPECT_EQ(kill(mpirun, GetParam()), 0);
  ExpectAnEnd(mpirun);
  EXPECT_THAT(call_.scratch().Names(), ::testing::AnyOf(before_, all_));
}

INSTANTIATE_TEST_SUITE_P(Signals, RanksUnderSignals, ::testing::Values(SIGTERM, SIGINT),
                         [](const auto& info) { return info.param == SIGINT ? "Interrupt" : "Terminate"; });

}  // namespace
}  // namespace fa::test
