// A signal to mpirun while rank 0 of fa-mpi has files that are not yet published.
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

TEST(RanksUnderSignals, LeaveNoPartOfAFile) {
  ForwardCall call("BNSD", {.heads = 8, .heads_kv = 1, .d = 1, .dv = 64, .lengths = {.sq = {4096}, .sk = {1}}});
  const std::vector<std::string> before = call.scratch().Names();
  std::string words = "run forward" + call.flags;
  for (const char* output : {"out", "softmax-max", "softmax-sum", "lse"}) {
    words += std::string(" --") + output + " '" + call.scratch().Path(std::string("new_") + output + ".npy") + "'";
  }
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t mpirun = StartRanks(words);
    ASSERT_GT(mpirun, 0);
    EXPECT_GT(StopTheWriter(call.scratch()), 0);
    EXPECT_EQ(kill(mpirun, signal), 0);
    int status = 0;
    ASSERT_TRUE(WaitForChild(mpirun, &status));
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << strsignal(signal);
    EXPECT_NE(status, SIGALRM) << "mpirun hangs";
    EXPECT_EQ(call.scratch().Names(), before) << strsignal(signal);
  }
}

}  // namespace
}  // namespace fa::test
