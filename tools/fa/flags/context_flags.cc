#include "flags/context_flags.h"

#include <fmt/format.h>

#include <utility>

#include "flags/failure.h"

namespace fa::tool {

void AddContextFlags(CLI::App& command, ContextFlags& flags) {
  command.add_option("--threads", flags.threads, "Threads; 0: FA_NUM_THREADS, else one per core")->type_name("N");
  command.add_option("--isa", flags.isa, IsaNames() + "; default: the CPU's best")->type_name("LEVEL");
  command.add_option("--accumulation", flags.accumulation, "deterministic (default) or atomic-free")->type_name("MODE");
}

std::unique_ptr<Context> MakeContext(const ContextFlags& flags) {
  ContextOptions options;
  if (flags.threads < 0) throw UsageError(fmt::format("--threads: {}, want at least 0", flags.threads));
  options.threads = flags.threads;
  if (!flags.isa.empty()) {
    options.isa = ParseIsa(flags.isa);
    if (!options.isa) {
      throw UsageError(fmt::format("--isa: '{}', want {}", flags.isa, IsaNames()));
    }
  }
  if (flags.accumulation == "atomic-free") {
    options.accumulation = Accumulation::kAtomicFree;
  } else if (flags.accumulation != "deterministic") {
    throw UsageError(fmt::format("--accumulation: '{}', want deterministic or atomic-free", flags.accumulation));
  }
  Result<std::unique_ptr<Context>> context = Context::Create(options);
  if (!context.ok()) ThrowUnlessOk(options.isa ? "--isa" : "--threads", context.status());
  return std::move(*context);
}

}  // namespace fa::tool
