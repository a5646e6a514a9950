// Tests a signal to mpirun, or to the rank that creates the output files, while these files have temporary names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/execution/child_process.h"
#include "tools/cli_mpi_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

pid_t StartRanks(const std::string& arguments) {
  const std::string line = std::string("exec env ") + kRanksEnvironment + " " + MpiCommand(2) + " " + arguments +
                           " </dev/null >/dev/null 2>/dev/null";
  const pid_t pid = fork();
  if (pid != 0) return pid;
  execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  _exit(127);
}

/// Returns the process that is writing the folder's first file NAME.PID-N.part, or 0 if there is no such file.
pid_t WriterOf(const ScratchFolder& folder) {
  for (const std::string& name : folder.Names()) {
    if (!name.ends_with(".part")) continue;
    const size_t from = name.find(".npy.") + 5;
    return std::atoi(name.substr(from, name.find('-', from) - from).c_str());
  }
  return 0;
}

/// Returns whether the process exists. It need not be a child of this process.
bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

/// A call of two ranks with four outputs.
class RanksUnderSignals : public ::testing::TestWithParam<int> {
 protected:
  RanksUnderSignals() : before_(call_.scratch().Names()), all_(before_) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // if mpirun ends before its ranks, they become children of this process
    for (const char* output : {"lse", "out", "softmax-max", "softmax-sum"}) {
      all_.push_back(std::string("new_") + output + ".npy");
      words_ += std::string(" --") + output + " '" + call_.scratch().Path(all_.back()) + "'";
    }
  }
  /// Starts the ranks. Stops the rank that creates the output files while these files still have temporary names. If
  /// the rank is too quick, starts the call again.
  void StartAndStopTheWriter() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      for (const std::string& name : call_.scratch().Names()) {
        if (name.starts_with("new_")) std::filesystem::remove(call_.scratch().Path(name));
      }
      mpirun_ = StartRanks(words_);
      ASSERT_GT(mpirun_, 0);
      int status = 0;
      bool ended = false;
      for (writer_ = 0; writer_ <= 1 && !ended; ended = writer_ <= 1 && waitpid(mpirun_, &status, WNOHANG) != 0) {
        writer_ = WriterOf(call_.scratch());
      }
      if (ended) continue;
      if (kill(writer_, SIGSTOP) == 0 && WriterOf(call_.scratch()) == writer_) return;
      kill(writer_, SIGCONT);
      ASSERT_TRUE(WaitForChild(mpirun_, &status));
    }
    FAIL() << "no rank was seen writing";
  }
  /// Expects that mpirun ends with an error, and that the writing rank ends too. An interrupted mpirun does not always
  /// wait for its ranks.
  void ExpectAnEnd() {
    int status = 0;
    ASSERT_TRUE(WaitForChild(mpirun_, &status));
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_NE(status, SIGALRM) << "mpirun hangs";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(HangSeconds(kWatchdogSeconds));
    while (!WriterHasEnded()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the writer hangs";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// Returns whether the writing rank has ended. If it had become a child of this process, notes whether it was killed.
  bool WriterHasEnded() {
    int status = 0;
    if (waitpid(writer_, &status, WNOHANG) != writer_) return !Exists(writer_);
    killed_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    return true;
  }

  ForwardCall call_{"BNSD", {.heads = 8, .heads_kv = 1, .d = 1, .dv = 64, .lengths = {.sq = {4096}, .sk = {1}}}};
  std::string words_ = "run forward" + call_.flags;
  std::vector<std::string> before_, all_;
  pid_t mpirun_ = 0, writer_ = 0;
  bool killed_ = false;
};

TEST_P(RanksUnderSignals, TheWriterLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAndStopTheWriter());
  // The stopped rank gets the signal as soon as it goes on, before it does anything else.
  EXPECT_EQ(kill(writer_, GetParam()), 0);
  EXPECT_EQ(kill(writer_, SIGCONT), 0);
  ExpectAnEnd();
  EXPECT_EQ(call_.scratch().Names(), before_);
}

// On a signal, mpirun resumes the stopped rank and passes the signal on. A second later it kills the ranks that still
// run. If the other rank ends before that, mpirun may kill the writing rank at once. No program can handle SIGKILL, so
// the test then starts again.
TEST_P(RanksUnderSignals, MpirunLeavesAllOrNothing) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    killed_ = false;
    ASSERT_NO_FATAL_FAILURE(StartAndStopTheWriter());
    EXPECT_EQ(kill(mpirun_, GetParam()), 0);
    ASSERT_NO_FATAL_FAILURE(ExpectAnEnd());
    if (killed_) continue;
    EXPECT_THAT(call_.scratch().Names(), ::testing::AnyOf(before_, all_));
    return;
  }
  FAIL() << "mpirun killed the writer every time";
}

INSTANTIATE_TEST_SUITE_P(Signals, RanksUnderSignals, ::testing::Values(SIGTERM, SIGINT),
                         [](const auto& info) { return info.param == SIGINT ? "Interrupt" : "Terminate"; });

}  // namespace
}  // namespace fa::test
