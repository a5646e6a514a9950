#include "ops/plan/verbose.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "ops/plan/plan_impl.h"
#include "tiling/plan_facts.h"

namespace fa::ops {
namespace {

enum class Wanted : uint8_t { kUnread, kNo, kYes };
constinit std::atomic<Wanted> wanted{Wanted::kUnread};

std::string LineOf(const Plan::Impl& plan, const Status& status, double milliseconds) {
  const tiling::PlanFacts facts = plan.Facts();
  std::string line = "fa: " + facts.problem;
  while (line.ends_with('\n')) line.pop_back();
  for (size_t end = line.find('\n'); end != line.npos; end = line.find('\n', end)) line.replace(end, 1, "; ");
  if (!facts.mask.empty()) line += "; " + facts.mask;
  line += std::string("; ") + Name(plan.context().isa()) + ";";
  for (const std::string& kernel : facts.kernels) line += (line.ends_with(';') ? " " : ", ") + kernel;
  if (facts.kernels.empty()) line += " no kernel";
  // A single task runs on the calling thread.
  const int threads = facts.graph.task_count <= 1 ? 1 : facts.machine.workers;
  line += "; " + std::to_string(threads) + (threads == 1 ? " thread; " : " threads; ");
  if (!status.ok()) return line + "failed: " + status.message() + "\n";
  char time[32];
  std::snprintf(time, sizeof time, "%.3f ms\n", milliseconds);
  return line + time;
}

}  // namespace

bool Verbose() noexcept {
  Wanted now = wanted.load(std::memory_order_relaxed);
  if (now == Wanted::kUnread) [[unlikely]] {
    const char* text = std::getenv("FA_VERBOSE");
    now = text != nullptr && std::strcmp(text, "1") == 0 ? Wanted::kYes : Wanted::kNo;
    wanted.store(now, std::memory_order_relaxed);
  }
  return now == Wanted::kYes;
}

void SetVerbose(bool verbose) noexcept {
  wanted.store(verbose ? Wanted::kYes : Wanted::kNo, std::memory_order_relaxed);
}

void Report(const Plan::Impl& plan, const Status& status, double milliseconds) noexcept {
  try {
    std::fputs(LineOf(plan, status, milliseconds).c_str(), stderr);
  } catch (const std::exception&) {
    // Without memory for the line, no line is written, and the run's result stays as it is.
  }
}

}  // namespace fa::ops
