#include "flags/context_flags.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "flags/failure.h"

namespace fa::tool {

void AddContextFlags(CLI::App& command, ContextFlags& flags) {
  command.add_option("--threads", flags.threads, "Threads; 0: FA_NUM_THREADS, else one per core")->type_name("N");
  std::string levels;
  for (const Isa isa : AllIsas()) levels.append(levels.empty() ? "" : "|").append(Name(isa));
  command.add_option("--isa", flags.isa, "Instruction-set level; default: the CPU's best")->type_name(levels);
  command.add_option("--accumulation", flags.accumulation, "Order of sums; default: deterministic")
      ->type_name("deterministic|atomic-free");
}

void AddContextFlags(CLI::App& command, PlanContextFlags& flags) {
  AddContextFlags(command, flags.here);
  command
      .add_option(
          "--cores", flags.cores,
          "Plan for another machine: this many cores, --isa of any CPU (default: this one's), caches of its servers")
      ->type_name("N");
}

namespace {

/// Returns the level that --isa names, or nothing if the flag is not given.
std::optional<Isa> IsaOf(const ContextFlags& flags) {
  if (flags.isa.empty()) return std::nullopt;
  const std::optional<Isa> isa = ParseIsa(flags.isa);
  if (!isa) throw UsageError(fmt::format("--isa: '{}', want {}", flags.isa, IsaNames()));
  return isa;
}

Accumulation AccumulationOf(const ContextFlags& flags) {
  if (flags.accumulation == "deterministic") return Accumulation::kDeterministic;
  if (flags.accumulation == "atomic-free") return Accumulation::kAtomicFree;
  throw UsageError(fmt::format("--accumulation: '{}', want deterministic or atomic-free", flags.accumulation));
}

}  // namespace

std::unique_ptr<Context> MakeContext(const ContextFlags& flags) {
  if (flags.threads < 0) throw UsageError(fmt::format("--threads: {}, want at least 0", flags.threads));
  ContextOptions options;
  options.threads = flags.threads;
  options.isa = IsaOf(flags);
  options.accumulation = AccumulationOf(flags);
  Result<std::unique_ptr<Context>> context = Context::Create(options);
  ThrowUnlessOk(context.status());
  return std::move(*context);
}

std::unique_ptr<Context> MakeContext(const PlanContextFlags& flags) {
  if (flags.cores == 0) return MakeContext(flags.here);
  if (flags.here.threads != 0)
    throw UsageError("--threads: given with --cores, want one of them (each core is a thread)");
  MachineOptions machine;
  machine.cores = flags.cores;
  const std::optional<Isa> isa = IsaOf(flags.here);
  machine.isa = isa ? *isa : MakeContext(flags.here)->isa();
  machine.accumulation = AccumulationOf(flags.here);
  Result<std::unique_ptr<Context>> context = Context::ForPlanning(machine);
  ThrowUnlessOk(context.status());
  return std::move(*context);
}

}  // namespace fa::tool
