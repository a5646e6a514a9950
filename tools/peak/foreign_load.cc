#include "peak/foreign_load.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace fa::bench {
namespace {

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Returns the ticks in which CPUs of the affinity mask were not idle: user, nice, system, irq, softirq and steal in
/// /proc/stat. Returns -1 if there is no such file.
double BusyTicks() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  std::ifstream file("/proc/stat");
  double busy = -1;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu") || line.size() < 4 || line[3] == ' ') continue;
    const int cpu = std::atoi(line.c_str() + 3);
    if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) continue;
    std::istringstream words(line.substr(line.find(' ')));
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft_irq = 0, steal = 0;
    words >> user >> nice >> system >> idle >> waiting >> irq >> soft_irq >> steal;
    busy = std::max(busy, 0.0) + user + nice + system + irq + soft_irq + steal;
  }
  return busy;
}

}  // namespace

ForeignLoad::ForeignLoad() : begin_(Now()) {}

ForeignLoad::Use ForeignLoad::Now() {
  rusage own = {};
  getrusage(RUSAGE_SELF, &own);
  const double ticks = BusyTicks();
  return {.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          .busy = ticks < 0 ? -1 : ticks / static_cast<double>(sysconf(_SC_CLK_TCK)),
          .own = SecondsOf(own.ru_utime) + SecondsOf(own.ru_stime)};
}

std::optional<double> ForeignLoad::Cpus() const {
  constexpr double kShortest = 0.2;
  const Use end = Now();
  if (begin_.busy < 0 || end.busy < 0 || end.wall - begin_.wall < kShortest) return std::nullopt;
  return std::max(0.0, (end.busy - begin_.busy) - (end.own - begin_.own)) / (end.wall - begin_.wall);
}

}  // namespace fa::bench
