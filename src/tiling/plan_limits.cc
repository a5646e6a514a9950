#include "tiling/plan_limits.h"

#include <algorithm>
#include <cstdio>

namespace fa::tiling {

PlanTooLarge::PlanTooLarge(const char* of, double wanted, double most, const char* hint) noexcept {
  // A number of 2^63 or more does not fit into the integer that is printed, so the text says "2^63 or more".
  const bool counted = wanted < 0x1p63;
  std::snprintf(
      text_.data(), text_.size(),
      counted ? "the plan: %.0f %s, want at most %.0f%s" : "the plan: 2^63 or more (%.2g) %s, want at most %.0f%s",
      wanted, of, most, hint);
}

int64_t MostTasks(int64_t memory_bytes) { return std::min(kMaxTasks, memory_bytes / kTaskBytes); }

void CheckTasks(double tasks, const Machine& machine) {
  const auto most = static_cast<double>(MostTasks(machine.memory_bytes));
  if (tasks > most) throw PlanTooLarge("tasks", tasks, most);
}

void CheckWork(double flops, int workers) {
  const double most = workers * kMostFlopsOfAWorker;
  if (flops > most) throw PlanTooLarge("floating-point operations", flops, most);
}

void CheckWorkspace(double bytes, const Machine& machine) {
  const auto most = static_cast<double>(machine.memory_bytes);
  if (bytes > most) throw PlanTooLarge("bytes of workspace", bytes, most);
}

}  // namespace fa::tiling
