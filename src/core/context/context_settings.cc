#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/amx_emulated.h"
#include "core/context/context_impl.h"
#include "fa/error_text.h"

namespace fa {
namespace {

constexpr int kMaxThreads = core::FlowExecutor::kMaxWorkers;

Result<int> ThreadsOfEnvironment(const char* text) {
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, threads);
  if (error != std::errc{} || stop != end || threads < 1 || threads > kMaxThreads) {
    return Status::InvalidArgument(std::string("FA_NUM_THREADS=") + text + ", want 1.." + std::to_string(kMaxThreads));
  }
  return threads;
}

Result<int> ResolveThreads(int option, const char* environment, const core::Topology& topology) {
  if (option < 0 || option > kMaxThreads) {
    return Status::InvalidArgument(ErrorText::Argument("threads").Is(std::to_string(option)) + ", want 0.." +
                                   std::to_string(kMaxThreads));
  }
  if (option > 0) return option;
  if (environment != nullptr && *environment != '\0') return ThreadsOfEnvironment(environment);
  return topology.default_workers();
}

/// Returns the highest level that the library has and that is not above `preferred`.
Isa HighestBuilt(Isa preferred, bool (*left_out)(Isa)) {
  Isa highest = Isa::kPortable;
  for (const Isa isa : AllIsas()) {
    if (isa != core::kAmxEmulated && Includes(preferred, isa) && !left_out(isa)) highest = isa;
  }
  return highest;
}

Result<Isa> ResolveIsa(std::optional<Isa> option, const char* environment, Isa highest, Isa preferred,
                       bool (*left_out)(Isa)) {
  ErrorText source = ErrorText::Argument("isa");
  std::optional<Isa> isa = option;
  if (!isa && environment != nullptr && *environment != '\0') {
    source = ErrorText("FA_FORCE_ISA");
    isa = ParseIsa(environment);
    if (!isa) {
      return Status::Unsupported(std::move(source).Is(environment) + ", want " + IsaNames());
    }
  }
  if (!isa) return left_out(preferred) ? HighestBuilt(preferred, left_out) : preferred;
  if (!Includes(highest, *isa)) {
    return Status::Unsupported(std::move(source).Is(Name(*isa)) + ", but this CPU's highest level is " + Name(highest));
  }
  if (left_out(*isa)) {
    return Status::Unsupported(std::move(source).Is(Name(*isa)) +
                               ", but this library was built without it: FA_LEVELS=all builds every level (pip: -C "
                               "cmake.define.FA_LEVELS=all)");
  }
  return *isa;
}

Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status::Ok();
  return Status::InvalidArgument(ErrorText::Argument(name).Is(std::to_string(value)) + ", want " +
                                 std::to_string(least) + ".." + std::to_string(most));
}

/// Sizes of the L1 and L2 caches of one core, for plans for another machine. They are the smallest among servers of the
/// level (Haswell, Skylake-SP, Kunpeng 920).
struct Caches {
  int64_t l1_bytes, l2_bytes;
};
Caches LeastCaches(Isa isa) {
  if (Includes(isa, Isa::kNeon)) return {64 << 10, 512 << 10};
  return Includes(isa, Isa::kAvx512) ? Caches{32 << 10, 1 << 20} : Caches{32 << 10, 256 << 10};
}

}  // namespace

Result<PlannedMachine> ResolveMachine(const MachineOptions& machine) {
  constexpr int64_t kMostCacheBytes = int64_t{1} << 40;
  for (const Status& status : {CheckRange("cores", machine.cores, 1, kMaxThreads),
                               CheckRange("numa_nodes", machine.numa_nodes, 1, machine.cores),
                               CheckRange("l1_bytes", machine.l1_bytes, 0, kMostCacheBytes),
                               CheckRange("l2_bytes", machine.l2_bytes, 0, kMostCacheBytes)}) {
    if (!status.ok()) return status;
  }
  PlannedMachine planned{.settings = {.workers = machine.cores,
                                      .isa = machine.isa,
                                      .accumulation = machine.accumulation,
                                      .plans_only = true},
                         .topology = {}};
  const Caches least = LeastCaches(machine.isa);
  planned.topology.l1_bytes = machine.l1_bytes > 0 ? machine.l1_bytes : least.l1_bytes;
  planned.topology.l2_bytes = machine.l2_bytes > 0 ? machine.l2_bytes : least.l2_bytes;
  for (int node = 0; node < machine.numa_nodes; ++node) {
    const int cores = machine.cores / machine.numa_nodes + (node < machine.cores % machine.numa_nodes ? 1 : 0);
    planned.topology.nodes.push_back({.os_index = node, .cores = cores});
  }
  return planned;
}

ContextEnvironment ContextEnvironment::Read() {
  return {.num_threads = std::getenv("FA_NUM_THREADS"),
          .force_isa = std::getenv("FA_FORCE_ISA"),
          .portable_blas = std::getenv("FA_PORTABLE_BLAS")};
}

Result<ContextSettings> ResolveContext(const ContextOptions& options, const ContextEnvironment& environment,
                                       const core::Topology& topology, Isa highest, std::optional<Isa> preferred,
                                       bool (*left_out)(Isa)) {
  const Result<int> threads = ResolveThreads(options.threads, environment.num_threads, topology);
  if (!threads.ok()) return threads.status();
  const Result<Isa> isa =
      ResolveIsa(options.isa, environment.force_isa, highest, preferred.value_or(highest), left_out);
  if (!isa.ok()) return isa.status();
  const bool blas_wanted = environment.portable_blas != nullptr && std::strcmp(environment.portable_blas, "1") == 0;
  return ContextSettings{.workers = *threads,
                         .isa = *isa,
                         .accumulation = options.accumulation,
                         .numa = options.numa,
                         .portable_blas = options.portable_blas.value_or(blas_wanted)};
}

}  // namespace fa
