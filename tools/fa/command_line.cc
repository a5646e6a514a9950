#include "command_line.h"

#include <CLI/CLI.hpp>

#include "commands.h"
#include "fa/version.h"
#include "files/files_read.h"
#include "program.h"

namespace fa::tool {
namespace {

void Run(int argc, char** argv) {
  CLI::App app{"Attention on CPUs"};
  app.set_version_flag("--version", FA_VERSION_STRING);
  app.require_subcommand(1);
  AddCommands(app);
  Parse(app, argc, argv);
  FinishOutput();
}

}  // namespace

void AddCommands(CLI::App& app) {
  app.name("fa");
  const auto group = [&app](const char* name, const char* text) -> CLI::App& {
    CLI::App* command = app.add_subcommand(name, text);
    command->require_subcommand(1);
    return *command;
  };
  CLI::App& run = group("run", "Run an operator on .npy files");
  CLI::App& plan = group("plan", "Show what would run and why");
#define FA_ADD(name, function, args, options, text) \
  AddRun##name(run);                                \
  AddPlan##name(plan);
  FA_OPERATORS(FA_ADD)
#undef FA_ADD
  CLI::App& bench = group("bench", "Measure against this machine's peak");
#define FA_ADD(name) AddBench##name(bench);
  FA_BENCHED_OPERATORS(FA_ADD)
#undef FA_ADD
  AddInfo(app);
  AddDoctor(app);
  AddCompletion(app);
  AddMan(app);
}

int RunCommandLine(int argc, char** argv) {
  ForgetFilesRead();
  return ExitCodeOf("fa", [&] { Run(argc, argv); });
}

}  // namespace fa::tool
