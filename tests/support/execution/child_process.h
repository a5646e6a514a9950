#ifndef FA_TESTS_SUPPORT_CHILD_PROCESS_H_
#define FA_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>

#include "support/execution/emulator.h"
#include "support/hang_alarm.h"

namespace fa::test {

/// A child that runs longer than this counts as hanging. The limit is far more than any machine needs.
inline constexpr unsigned kWatchdogSeconds = 60;

/// How a child ends: by _exit or by exit.
enum class End : uint8_t { kAtOnce, kExit };

/// Waits for a child as waitpid does. Kills the child after HangSeconds(kWatchdogSeconds). The status then says that
/// SIGALRM ended the child.
/// @return false if there is no such child
inline bool WaitForChild(pid_t pid, int* status) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(HangSeconds(kWatchdogSeconds));
  while (std::chrono::steady_clock::now() < deadline) {
    const pid_t ended = waitpid(pid, status, WNOHANG);
    if (ended != 0) return ended == pid;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(pid, SIGKILL);
  if (waitpid(pid, status, 0) != pid) return false;
  *status = SIGALRM;
  return true;
}

/// Forks. The child ends with the result of `child` as its exit code.
///
/// qemu-user 7.2 ends a child in which a new thread gets the number of a thread of the parent. New numbers follow the
/// number of the thread that forked. So under an emulator a new thread forks, whose number is the highest.
inline pid_t StartChild(const std::function<int()>& child, End end = End::kAtOnce) {
  const auto start = [&] {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const int code = child();
    if (end == End::kExit) std::exit(code);
    _exit(code);
  };
  if (!Emulated()) return start();
  pid_t pid = -1;
  std::thread([&] { pid = start(); }).join();
  return pid;
}

/// Expects that `child` returns 0. Any other number tells which of its checks failed. A child that hangs is killed.
inline ::testing::AssertionResult RunsInAChild(const std::function<int()>& child, End end = End::kAtOnce) {
  const pid_t pid = StartChild(child, end);
  int status = 0;
  if (pid < 0 || !WaitForChild(pid, &status)) return ::testing::AssertionFailure() << "fork or waitpid failed";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return ::testing::AssertionFailure() << "the child hangs";
  if (WIFSIGNALED(status)) return ::testing::AssertionFailure() << "the child ended by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the child's check " << WEXITSTATUS(status);
}

}  // namespace fa::test

#endif  // FA_TESTS_SUPPORT_CHILD_PROCESS_H_
