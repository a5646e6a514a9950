// A signal to mpirun while rank 0 of fa-mpi has files that are not yet published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
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

/// The process of the first NAME.PID-N.part of the folder; 0: there is none.
pid_t WriterOf(const ScratchFolder& folder) {
  for (const std::string& name : folder.Names()) {
    if (!name.ends_with(".part")) continue;
    const size_t from = name.find(".npy.") + 5;
    return std::atoi(name.substr(from, name.find('-', from) - from).c_str());
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
  /// Starts the ranks and stops the one that writes while its files are not yet published. It may be too quick on a
  /// busy machine: then all begins again.
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
  /// Expects that mpirun ends, and not as if all were well.
  void ExpectAnEnd() const {
    int status = 0;
    ASSERT_TRUE(WaitForChild(mpirun_, &status));
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_NE(status, SIGALRM) << "mpirun hangs";
  }

  ForwardCall call_{"BNSD", {.heads = 8, .heads_kv = 1, .d = 1, .dv = 64, .lengths = {.sq = {4096}, .sk = {1}}}};
  std::string words_ = "run forward" + call_.flags;
  std::vector<std::string> before_, all_;
  pid_t mpirun_ = 0, writer_ = 0;
};

TEST_P(RanksUnderSignals, TheWriterLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAndStopTheWriter());
  EXPECT_EQ(kill(writer_, GetParam()), 0);  // it comes when the process goes on, before anything else does
  EXPECT_EQ(kill(writer_, SIGCONT), 0);
  ExpectAnEnd();
  EXPECT_EQ(call_.scratch().Names(), before_);
}

// mpirun lets a stopped process go on before it passes the signal on.
TEST_P(RanksUnderSignals, MpirunLeavesAllOrNothing) {
  ASSERT_NO_FATAL_FAILURE(StartAndStopTheWriter());
  EXPECT_EQ(kill(mpirun_, GetParam()), 0);
  ExpectAnEnd();
  EXPECT_THAT(call_.scratch().Names(), ::testing::AnyOf(before_, all_));
}

INSTANTIATE_TEST_SUITE_P(Signals, RanksUnderSignals, ::testing::Values(SIGTERM, SIGINT),
                         [](const auto& info) { return info.param == SIGINT ? "Interrupt" : "Terminate"; });

}  // namespace
}  // namespace fa::test
