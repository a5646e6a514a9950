#include "bundle/command.h"

#include <sched.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fa/context.h"
#include "peak/peak_rate.h"

namespace fa::bundle {
namespace {

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void Pin(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

Outcome Run(const std::string& command, double seconds, const std::vector<int>& cpus) {
  std::string list;
  for (const int cpu : cpus) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  const std::string line =
      "timeout -k 1 " + std::to_string(std::max(seconds, 0.1)) + " taskset -c " + list + " " + command;
  Outcome outcome;
  std::FILE* pipe = popen((line + " 2>/dev/null </dev/null").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) outcome.out.append(buffer, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

std::vector<int> QuietestCpus() {
  constexpr int kSamples = 40;
  const std::vector<int> allowed = AllowedCpus();
  std::vector<std::vector<double>> rates(allowed.size());
  bench::PeakRate peak(1, DetectIsa(), DType::kF32);
  // The CPUs take turns, so that a disturbance slows all of them equally.
  for (int sample = 0; sample < kSamples; ++sample) {
    for (size_t i = 0; i < allowed.size(); ++i) {
      Pin({allowed[i]});
      rates[i].push_back(peak.Gflops(0));
    }
  }
  Pin(allowed);
  // Pairs (-rate, CPU): sorting puts the fastest CPU first. The rate of a CPU is the first quartile of its samples.
  std::vector<std::pair<double, int>> order;
  for (size_t i = 0; i < allowed.size(); ++i) {
    std::nth_element(rates[i].begin(), rates[i].begin() + kSamples / 4, rates[i].end());
    order.emplace_back(-rates[i][kSamples / 4], allowed[i]);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> cpus;
  for (const auto& [rate, cpu] : order) cpus.push_back(cpu);
  return cpus;
}

}  // namespace fa::bundle
