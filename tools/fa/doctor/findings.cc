#include "doctor/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "peak/foreign_load.h"

namespace fa::tool {
namespace {

using Matches = bool (*)(std::string_view value);

bool IsAny(std::string_view /*value*/) { return true; }
bool IsOne(std::string_view value) { return value == "1"; }

bool Is(std::string_view value, std::string_view word) {
  const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  return std::equal(value.begin(), value.end(), word.begin(), word.end(), same);
}

/// Returns whether this value of OMP_PROC_BIND binds threads. The values "false", "0" and "" do not; all others do.
bool Binds(std::string_view value) { return !value.empty() && !Is(value, "false") && value != "0"; }
/// Returns whether this value of KMP_AFFINITY binds threads. Values that contain "none" or "disabled" do not; all
/// others do.
bool BindsOfIntel(std::string_view value) {
  return value.find("none") == std::string_view::npos && value.find("disabled") == std::string_view::npos;
}
bool IsActive(std::string_view value) { return Is(value, "active"); }
bool IsInfinite(std::string_view value) { return Is(value, "infinite") || Is(value, "infinity"); }

struct Variable {
  const char* name;
  Matches hurts;
  const char* effect;
};

constexpr const char* kBound =
    "the OpenMP runtime binds the threads that call fa to few cores, and fa uses only cores of its caller's affinity "
    "mask";
constexpr const char* kSpins = "OpenMP threads spin between their regions on the cores that fa works on";
constexpr const char* kInvented = "hwloc describes an invented machine, for which fa chooses its threads";

// Environment variables of fa, of libraries that fa loads (hwloc, OpenBLAS), and of libraries that programs may load
// next to fa (OpenMP, MKL).
constexpr Variable kVariables[] = {
    {"FA_FORCE_ISA", IsAny, "every call runs at this level and not at the CPU's best"},
    {"FA_ASSUME_ISA", IsAny, "the level is taken for granted: a CPU that lacks it ends the process by SIGILL"},
    {"FA_NUM_THREADS", IsAny, "calls use this many threads instead of one per core"},
    {"FA_PORTABLE_BLAS", IsOne,
     "OpenBLAS computes the products of the portable level: outside the promise of equal bits"},
    {"HWLOC_SYNTHETIC", IsAny, kInvented},
    {"HWLOC_XMLFILE", IsAny, kInvented},
    {"OMP_PROC_BIND", Binds, kBound},
    {"OMP_PLACES", IsAny, kBound},
    {"GOMP_CPU_AFFINITY", IsAny, kBound},
    {"KMP_AFFINITY", BindsOfIntel, kBound},
    {"OMP_WAIT_POLICY", IsActive, kSpins},
    {"GOMP_SPINCOUNT", IsInfinite, kSpins},
    {"KMP_BLOCKTIME", IsInfinite, kSpins},
    {"OMP_NUM_THREADS", IsOne, "a program's other operators run on one thread; fa takes FA_NUM_THREADS"},
    {"MKL_NUM_THREADS", IsOne, "MKL runs on one thread; fa takes FA_NUM_THREADS"},
    {"MKL_ENABLE_INSTRUCTIONS", IsAny, "MKL is held to this instruction-set level: comparisons with it are not fair"},
    {"ONEDNN_MAX_CPU_ISA", IsAny, "oneDNN is held to this instruction-set level: comparisons with it are not fair"},
    {"ATEN_CPU_CAPABILITY", IsAny, "PyTorch is held to this instruction-set level: comparisons with it are not fair"},
    {"OPENBLAS_CORETYPE", IsAny, "OpenBLAS is held to the kernels of one CPU type"},
};

std::string SubjectOf(const SelfTestResult& result) {
  return fmt::format("{} {} {}", result.isa, result.op, result.dtype);
}

}  // namespace

std::vector<Finding> FindVariables(const std::function<const char*(const char* name)>& get) {
  std::vector<Finding> findings;
  // If OMP_PROC_BIND is false, the other variables that bind threads have no effect.
  const char* bind = get("OMP_PROC_BIND");
  const bool unbound = bind != nullptr && *bind != '\0' && !Binds(bind);
  for (const Variable& variable : kVariables) {
    const char* value = get(variable.name);
    if (value == nullptr || *value == '\0' || !variable.hurts(value)) continue;
    if (unbound && variable.effect == kBound) continue;
    findings.push_back({fmt::format("{}={}", variable.name, value), variable.effect});
  }
  return findings;
}

std::vector<Finding> FindSettings(const SystemFacts& facts) {
  std::vector<Finding> findings;
  const auto slow = std::find_if(facts.governors.begin(), facts.governors.end(),
                                 [](const std::string& name) { return name != "performance"; });
  if (slow != facts.governors.end()) {
    findings.push_back({"governor", fmt::format("{}: the clock may follow the load late; with performance it does not",
                                                fmt::join(facts.governors, ", "))});
  }
  if (facts.transparent_huge_pages == "never") {
    findings.push_back(
        {"huge pages", "never: decode from pages of 4 KiB takes about a quarter longer (docs/threads.md)"});
  }
  if (facts.allowed_cpus > 0 && facts.allowed_cpus < facts.online_cpus) {
    findings.push_back({"affinity", fmt::format("the process may use {} of {} hardware threads", facts.allowed_cpus,
                                                facts.online_cpus)});
  }
  if (facts.cpu_limit && (facts.allowed_cpus == 0 || *facts.cpu_limit < static_cast<double>(facts.allowed_cpus))) {
    findings.push_back({"control group", fmt::format("it grants the time of {:g} CPUs", *facts.cpu_limit)});
  }
  if (facts.memory_limit_bytes && *facts.memory_limit_bytes < facts.memory_bytes) {
    findings.push_back({"control group", fmt::format("it grants {:.1f} GiB of the machine's memory",
                                                     static_cast<double>(*facts.memory_limit_bytes) / (1 << 30))});
  }
  if (facts.numa_balancing && facts.numa_nodes > 1) {
    findings.push_back({"NUMA balancing", "the kernel unmaps pages to see who uses them, and moves them"});
  }
  return findings;
}

std::vector<Finding> FindDoubts(const std::vector<SelfTestResult>& results, std::optional<double> foreign_cpus) {
  std::vector<Finding> findings;
  if (foreign_cpus && *foreign_cpus > bench::kMostForeignCpus) {
    findings.push_back({"load", fmt::format("other programs used {:.2f} CPUs during the self-test: its rates are lower "
                                            "bounds",
                                            *foreign_cpus)});
  }
  int64_t busy = 0;
  for (const SelfTestResult& result : results) {
    if (!result.wrong.empty()) continue;
    if (result.above_peak) {
      findings.push_back(
          {SubjectOf(result), fmt::format("faster than the {} around it, so that rate is too low", result.peak)});
    } else if (!result.fraction) {
      ++busy;
    }
  }
  if (busy > 0) {
    findings.push_back({"self-test", fmt::format("{} of {} operators had no quiet round: their rates are lower bounds",
                                                 busy, results.size())});
  }
  return findings;
}

std::vector<Finding> FindWrongResults(const std::vector<SelfTestResult>& results) {
  std::vector<Finding> findings;
  for (const SelfTestResult& result : results) {
    if (!result.wrong.empty()) findings.push_back({SubjectOf(result), result.wrong});
  }
  return findings;
}

}  // namespace fa::tool
