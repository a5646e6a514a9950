#include "peak/foreign_load.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

namespace fa::bench {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
void SpinFor(double seconds) {
  const Clock::time_point begin = Clock::now();
  while (SecondsSince(begin) < seconds) {
  }
}

constexpr double kSeconds = 0.5;

TEST(ForeignLoad, SeesAnotherProgram) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) {
    }
  }
  const ForeignLoad load;
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const std::optional<double> cpus = load.Cpus();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(cpus);
  // The child uses at least half of a CPU, however busy other programs are.
  EXPECT_GT(*cpus, 0.5);
}

TEST(ForeignLoad, DoesNotCountThisProgram) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int count = CPU_COUNT(&allowed);
  const auto own_seconds = [] {
    rusage use = {};
    getrusage(RUSAGE_SELF, &use);
    return static_cast<double>(use.ru_utime.tv_sec) + 1e-6 * static_cast<double>(use.ru_utime.tv_usec);
  };
  const double before = own_seconds();
  const Clock::time_point begin = Clock::now();
  const ForeignLoad load;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(SpinFor, kSeconds);
  for (std::thread& thread : threads) thread.join();
  const std::optional<double> cpus = load.Cpus();
  ASSERT_TRUE(cpus);
  const double own = (own_seconds() - before) / SecondsSince(begin);
  const double ticks = 0.02 / kSeconds * count;  // a tick of 10 ms at each end may add this to the use
  EXPECT_LE(*cpus, count - own + ticks);
}

TEST(ForeignLoad, SaysNothingOfAMoment) { EXPECT_FALSE(ForeignLoad().Cpus()); }

}  // namespace
}  // namespace fa::bench
