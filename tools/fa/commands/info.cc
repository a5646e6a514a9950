// fa info prints what the library knows about this machine.

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/machine_facts.h"
#include "fa/version.h"
#include "flags/context_flags.h"

namespace fa::tool {
namespace {

struct InfoFlags {
  ContextFlags context;
  bool json = false;
};

const char* ForcedIsa(const ContextFlags& flags) {
  if (!flags.isa.empty()) return flags.isa.c_str();
  return std::getenv("FA_FORCE_ISA");
}

/// Returns the levels that this CPU has and this library lacks.
std::vector<std::string> LevelsNotBuilt() {
  std::vector<std::string> names;
  for (const Isa isa : AllIsas()) {
    if (Includes(DetectIsa(), isa) && !CanRun(isa)) names.emplace_back(Name(isa));
  }
  return names;
}

nlohmann::ordered_json ToJson(const Context& context, const char* forced_isa) {
  using Json = nlohmann::ordered_json;
  const MachineFacts machine = ReadMachineFacts(context);
  Json dependencies = Json::object();
  for (const auto& [name, version] : DependencyVersions()) dependencies[name] = version;
  return {{"version", FA_VERSION_STRING},
          {"cpu", machine.cpu},
          {"isa", Name(context.isa())},
          {"isa_detected", Name(DetectIsa())},
          {"isa_not_built", LevelsNotBuilt()},
          {"isa_note", context.isa_note()},
          {"isa_forced", forced_isa != nullptr ? Json(forced_isa) : Json(nullptr)},
          {"caches", ToJson(machine.data_caches)},
          {"numa_nodes", machine.numa_nodes},
          {"numa_policy", context.numa() == NumaPolicy::kSpread ? "spread" : "ignore"},
          {"threads", context.threads()},
          {"accumulation", context.accumulation() == Accumulation::kDeterministic ? "deterministic" : "atomic-free"},
          {"dependencies", dependencies}};
}

void PrintText(const Context& context, const char* forced_isa) {
  const std::string machine = context.Describe();
  fmt::print("fa {}\n{}{}", FA_VERSION_STRING, machine, machine.ends_with('\n') ? "" : "\n");
  if (forced_isa != nullptr) fmt::print("forced isa: {}\n", forced_isa);
  for (const auto& [name, version] : DependencyVersions()) fmt::print("{}: {}\n", name, version);
}

void Run(const InfoFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const char* forced_isa = ForcedIsa(flags.context);
  if (flags.json) {
    fmt::print("{}\n", ToJson(*context, forced_isa).dump(2));
  } else {
    PrintText(*context, forced_isa);
  }
}

}  // namespace

void AddInfo(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Version, CPU, instruction set, caches, NUMA, threads, dependencies");
  const auto flags = std::make_shared<InfoFlags>();
  AddContextFlags(*command, flags->context);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags] { Run(*flags); });
}

}  // namespace fa::tool
