// The command line: attention on .npy files, plans, benchmarks. See docs and `fa --help`.
// Exit codes: 0; 1 for problems with files or memory and for defects; 2 for bad arguments. An error is one line on
// stderr.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "fa/version.h"
#include "files/staged_file.h"
#include "flags/failure.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadArguments = 2;

/// Prints the message in one line. Allocates nothing, since it may say that there is no memory.
int Report(int exit_code, const char* message) noexcept {
  char part[512];
  std::fputs("fa: ", stderr);
  while (*message != '\0') {
    size_t size = 0;
    for (; size < sizeof part && *message != '\0'; ++message) part[size++] = *message == '\n' ? ' ' : *message;
    std::fwrite(part, 1, size, stderr);
  }
  std::fputs("\n", stderr);
  return exit_code;
}

/// Destructors of nlohmann::json allocate (json_value::destroy): without memory they end the process. It then ends as
/// after any other lack of memory.
[[noreturn]] void EndWithoutMemory() noexcept {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    fa::tool::RemoveStagedFiles();
    _exit(Report(kFailure, "out of memory"));
  } catch (...) {
    std::abort();
  }
  std::abort();
}

void AddCommands(CLI::App& app) {
  const auto group = [&app](const char* name, const char* text) -> CLI::App& {
    CLI::App* command = app.add_subcommand(name, text);
    command->require_subcommand(1);
    return *command;
  };
  CLI::App& run = group("run", "Run an operator on .npy files");
  fa::tool::AddRunForward(run);
  fa::tool::AddRunBackward(run);
  fa::tool::AddRunMerge(run);
  fa::tool::AddRunDecode(run);
  fa::tool::AddRunPrompt(run);
  fa::tool::AddRunSparseForward(run);
  fa::tool::AddRunSparseBackward(run);
  fa::tool::AddRunIndexer(run);
  fa::tool::AddRunIndexerBackward(run);
  fa::tool::AddRunIndexerLoss(run);
  fa::tool::AddRunDenseIndexerLse(run);
  fa::tool::AddRunDenseIndexerLoss(run);
  CLI::App& plan = group("plan", "Show what would run and why");
  fa::tool::AddPlanForward(plan);
  fa::tool::AddPlanBackward(plan);
  fa::tool::AddPlanDecode(plan);
  fa::tool::AddPlanPrompt(plan);
  fa::tool::AddPlanSparseForward(plan);
  fa::tool::AddPlanSparseBackward(plan);
  fa::tool::AddPlanIndexer(plan);
  fa::tool::AddPlanIndexerBackward(plan);
  fa::tool::AddPlanIndexerLoss(plan);
  fa::tool::AddPlanDenseIndexerLse(plan);
  fa::tool::AddPlanDenseIndexerLoss(plan);
  CLI::App& bench = group("bench", "Measure against this machine's peak");
  fa::tool::AddBenchForward(bench);
  fa::tool::AddBenchBackward(bench);
  fa::tool::AddBenchDecode(bench);
  fa::tool::AddBenchPrompt(bench);
  fa::tool::AddBenchSparseForward(bench);
  fa::tool::AddBenchSparseBackward(bench);
  fa::tool::AddBenchIndexer(bench);
  fa::tool::AddBenchIndexerBackward(bench);
  fa::tool::AddBenchIndexerLoss(bench);
  fa::tool::AddBenchDenseIndexerLoss(bench);
  fa::tool::AddInfo(app);
}

/// The command that the first words name. Throws an error that says which word is not a command and which words are;
/// CLI11 would only say that a command is missing.
const CLI::App& CommandOf(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    const std::vector<const CLI::App*> choices = command->get_subcommands([](const CLI::App*) { return true; });
    if (choices.empty()) return *command;
    const auto named = [&](const CLI::App* choice) { return choice->get_name() == argv[i]; };
    const auto found = std::find_if(choices.begin(), choices.end(), named);
    if (found == choices.end()) {
      std::string names;
      for (const CLI::App* choice : choices) names += ' ' + choice->get_name();
      throw fa::tool::UsageError(fmt::format("'{}' is not a command here, want one of:{}", argv[i], names));
    }
    command = *found;
  }
  return *command;
}

/// Refuses options that the command does not have, all in one message (CLI11 asks for required options first), and
/// empty values (CLI11 would take them for missing values).
void CheckOptionWords(const CLI::App& command, int argc, char** argv) {
  std::string unknown;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string name(word.substr(0, word.find('=')));
    const bool is_option = word.starts_with("--") && word.size() > 2;
    if (is_option && command.get_option_no_throw(name) == nullptr) unknown += (unknown.empty() ? "" : ", ") + name;
    const bool empty_next = is_option && i + 1 < argc && argv[i + 1][0] == '\0';
    if (is_option && ((word == name && empty_next) || word == name + '=')) {
      throw fa::tool::UsageError(fmt::format("{}: an empty value", name));
    }
  }
  if (!unknown.empty()) throw fa::tool::UsageError("unknown option " + unknown);
}

int Main(int argc, char** argv) {
  fa::tool::MakeFileSizeLimitAnError();
  std::set_terminate(EndWithoutMemory);
  CLI::App app{"Attention on CPUs"};
  app.name("fa");
  app.set_version_flag("--version", FA_VERSION_STRING);
  app.require_subcommand(1);
  AddCommands(app);
  CheckOptionWords(CommandOf(app, argc, argv), argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    app.exit(help_or_version);
  } catch (const CLI::ExtrasError&) {
    std::string words;
    for (const std::string& word : app.remaining(/*recurse=*/true)) words += ' ' + word;
    return Report(kBadArguments, ("unexpected:" + words).c_str());
  } catch (const CLI::ParseError& error) {
    return Report(kBadArguments, error.what());
  }
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) return Report(kFailure, "standard output: write failed");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const fa::tool::UsageError& error) {
    return Report(kBadArguments, error.what());
  } catch (const std::bad_alloc&) {
    return Report(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return Report(kFailure, error.what());
  }
}
