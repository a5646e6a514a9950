// Tests which files a command leaves behind: all files that it names, or none, however its process ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "files/staged_file.h"
#include "npy/npy_file.h"
#include "tools/cli_run.h"
#include "tools/forward_call.h"

namespace fa::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};

/// Waits for the process. Returns its exit code, or minus the signal that ended it.
int EndOf(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return 1000;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Starts `fa ARGUMENTS`. In the new process the signals of kEndingSignals have their default effect, even if this
/// process ignores them.
pid_t StartCli(const std::string& arguments) {
  const std::string command = "exec " FA_CLI_COMMAND " " + arguments + " </dev/null 2>/dev/null";
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const int signal : kEndingSignals) ::signal(signal, SIG_DFL);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

/// A call whose statistics are longer than the capacity of a pipe.
class LongOutputs : public ::testing::Test {
 protected:
  LongOutputs()
      : call_("BNSD", {.heads = 8, .heads_kv = 1, .d = 1, .dv = 1, .lengths = {.sq = {4096}, .sk = {1}}}),
        before_(call_.scratch().Names()) {}

  [[nodiscard]] std::string Path(const std::string& name) const { return call_.scratch().Path(name); }
  /// Starts a call whose first output is a file and whose second is a pipe. On return, the file is written but does not
  /// have its name yet. The call cannot end, because the pipe is too small for the second output.
  [[nodiscard]] pid_t StartAndStopAtThePipe(int* pipe_end) const {
    EXPECT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
    const pid_t pid = StartCli("run forward" + call_.flags + " --out " + Path("out.npy") + " --lse " + Path("pipe"));
    *pipe_end = open(Path("pipe").c_str(), O_RDONLY);
    char first = 0;
    EXPECT_EQ(read(*pipe_end, &first, 1), 1);
    return pid;
  }

  ForwardCall call_;
  std::vector<std::string> before_;
};

TEST_F(LongOutputs, LeaveNothingWhenASignalEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL}) {
    int pipe_end = -1;
    const pid_t pid = StartAndStopAtThePipe(&pipe_end);
    EXPECT_EQ(kill(pid, signal), 0);
    EXPECT_EQ(EndOf(pid), -signal);
    close(pipe_end);
    fs::remove(Path("pipe"));
    EXPECT_EQ(call_.scratch().Names(), before_) << strsignal(signal);
  }
}

TEST_F(LongOutputs, LeaveNothingWhenAReaderGoes) {
  int pipe_end = -1;
  const pid_t pid = StartAndStopAtThePipe(&pipe_end);
  close(pipe_end);
  EXPECT_EQ(EndOf(pid), -SIGPIPE);
  fs::remove(Path("pipe"));
  EXPECT_EQ(call_.scratch().Names(), before_);
}

TEST_F(LongOutputs, BeyondTheLimitOnFileSizesAreAnError) {
  // The limit on files is 64 KiB, in units of 512 bytes. The text on stderr is shorter.
  const CliResult result = RunCli("run forward" + call_.flags + " --out " + Path("out.npy"), "ulimit -f 128;");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--out: " + Path("out.npy") + ": " + std::strerror(EFBIG)));
  EXPECT_EQ(call_.scratch().Names(), before_);
}

class CliLinks : public ::testing::Test {
 protected:
  CliLinks() : call_("BNSD", {.heads = 1, .heads_kv = 1, .d = 4, .dv = 4, .lengths = {.sq = {2}, .sk = {3}}}) {}
  [[nodiscard]] std::string Path(const std::string& name) const { return call_.scratch().Path(name); }
  [[nodiscard]] CliResult Run(const std::string& out) const {
    return RunCli("run forward" + call_.flags + " --out " + Path(out));
  }

  ForwardCall call_;
};

// If a link's file is missing, the command keeps the link and creates the file, as numpy.save and a shell's `>` do.
TEST_F(CliLinks, ToNoFileYetStayAndTheirFileIsMade) {
  fs::create_directory(Path("there"));
  fs::create_symlink("second.npy", Path("first.npy"));
  fs::create_symlink("there/third.npy", Path("second.npy"));
  const CliResult result = Run("first.npy");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::is_symlink(Path("first.npy")));
  EXPECT_TRUE(fs::is_symlink(Path("second.npy")));
  ASSERT_TRUE(fs::is_regular_file(fs::symlink_status(Path("there/third.npy"))));
  EXPECT_EQ(npy::Load(Path("first.npy")).shape(), (std::vector<int64_t>{1, 1, 2, 4}));
}

TEST_F(CliLinks, ToFilesStayAndTheirFileIsReplaced) {
  ASSERT_EQ(call_.scratch().Write("old.npy", "old"), Path("old.npy"));
  fs::create_symlink("old.npy", Path("link.npy"));
  ASSERT_EQ(Run("link.npy").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(Path("link.npy")));
  EXPECT_EQ(npy::Load(Path("old.npy")).shape(), (std::vector<int64_t>{1, 1, 2, 4}));
}

TEST_F(CliLinks, ThatNameNoFolderOrThemselvesAreFailures) {
  fs::create_symlink("no/such/file.npy", Path("lost.npy"));
  fs::create_symlink("round.npy", Path("round.npy"));
  for (const char* name : {"lost.npy", "round.npy"}) {
    const CliResult result = Run(name);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(result.HasOneLineOfError()) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--out: " + Path(name)));
    EXPECT_TRUE(fs::is_symlink(Path(name)));
  }
}

using tool::StagedFile;
class StagedFiles : public ::testing::TestWithParam<StagedFile::Naming> {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return scratch_.Path(name); }
  void Put(StagedFile& file, const std::string& text) const {
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), file.stream()), text.size());
    file.Finish();
  }
  ScratchFolder scratch_;
};

TEST_P(StagedFiles, TakeThePlaceOfTheirDestinationsWhenPublished) {
  ASSERT_EQ(scratch_.Write("b", "old"), Path("b"));
  {
    StagedFile a(Path("a"), GetParam()), b(Path("b"), GetParam());
    Put(a, "new a");
    Put(b, "new b");
    EXPECT_EQ(scratch_.Read("a") + scratch_.Read("b"), "old");
    const tool::PublishedTogether together;
    a.Publish();
    b.Publish();
  }
  EXPECT_THAT(scratch_.Names(), ElementsAre("a", "b"));
  EXPECT_EQ(scratch_.Read("a") + scratch_.Read("b"), "new anew b");
}

TEST_P(StagedFiles, LeaveNothingWhenTheyAreNotPublished) {
  {
    StagedFile file(Path("a"), GetParam());
    Put(file, "text");
  }
  EXPECT_THAT(scratch_.Names(), IsEmpty());
}

TEST_P(StagedFiles, SayWhyTheyCannotBe) {
  EXPECT_THROW(StagedFile(Path("no/such/file"), GetParam()), npy::IoError);
  std::filesystem::create_directory(Path("folder"));
  StagedFile file(Path("folder"), GetParam());
  Put(file, "text");
  EXPECT_THROW(file.Publish(), npy::IoError);
  EXPECT_THAT(scratch_.Names(), ElementsAre("folder"));
}

TEST_P(StagedFiles, HaveThePermissionsOfAnyNewFile) {
  const mode_t mask = umask(0027);
  {
    StagedFile file(Path("a"), GetParam());
    file.Finish();
    file.Publish();
  }
  umask(mask);
  struct stat facts = {};
  ASSERT_EQ(stat(Path("a").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640U);
}

/// Runs `body` in a child in which signals have their default effect.
int EndOfChild(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int signal : kEndingSignals) ::signal(signal, SIG_DFL);
    body();
    _exit(0);
  }
  return EndOf(pid);
}

TEST_P(StagedFiles, LeaveNothingWhenASignalComesBeforeTheyArePublished) {
  for (const int signal : kEndingSignals) {
    EXPECT_EQ(EndOfChild([&] {
                StagedFile a(Path("a"), GetParam()), b(Path("b"), GetParam());
                Put(a, "text");
                raise(signal);
              }),
              -signal);
    EXPECT_THAT(scratch_.Names(), IsEmpty()) << strsignal(signal);
  }
}

TEST_P(StagedFiles, LeaveNothingWhenASignalComesWhileTheyAreMade) {
  for (int trial = 0; trial < 60; ++trial) {
    EXPECT_EQ(EndOfChild([&] {
                const itimerval soon = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 200 + 37 * trial}};
                setitimer(ITIMER_REAL, &soon, nullptr);
                for (;;) const StagedFile file(Path("a"), GetParam());
              }),
              -SIGALRM);
    ASSERT_THAT(scratch_.Names(), IsEmpty()) << trial;
  }
}

TEST_P(StagedFiles, AreAllThereWhenASignalComesWhileTheyArePublished) {
  EXPECT_EQ(EndOfChild([&] {
              StagedFile a(Path("a"), GetParam()), b(Path("b"), GetParam());
              Put(a, "text");
              Put(b, "text");
              const tool::PublishedTogether together;
              a.Publish();
              raise(SIGTERM);
              b.Publish();
            }),
            -SIGTERM);
  EXPECT_THAT(scratch_.Names(), ElementsAre("a", "b"));
}

TEST_P(StagedFiles, LeaveIgnoredSignalsIgnored) {
  EXPECT_EQ(EndOfChild([&] {
              signal(SIGHUP, SIG_IGN);
              StagedFile a(Path("a"), GetParam());
              Put(a, "text");
              raise(SIGHUP);
              a.Publish();
            }),
            0);
  EXPECT_THAT(scratch_.Names(), ElementsAre("a"));
}

INSTANTIATE_TEST_SUITE_P(Naming, StagedFiles,
                         ::testing::Values(StagedFile::Naming::kIfNeeded, StagedFile::Naming::kAlways),
                         [](const auto& info) {
                           return info.param == StagedFile::Naming::kAlways ? "Named" : "NamelessWherePossible";
                         });

}  // namespace
}  // namespace fa::test
