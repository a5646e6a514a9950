#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "fa/version.h"
#include "files/files_read.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

constexpr int kBadArguments = 2;

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
      throw UsageError(fmt::format("'{}' is not a command here, want one of:{}", argv[i], names));
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
      throw UsageError(fmt::format("{}: an empty value", name));
    }
  }
  if (!unknown.empty()) throw UsageError("unknown option " + unknown);
}

int Run(int argc, char** argv) {
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
    return ReportError(kBadArguments, ("unexpected:" + words).c_str());
  } catch (const CLI::ParseError& error) {
    return ReportError(kBadArguments, error.what());
  }
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) return ReportError(kFailure, "standard output: write failed");
  return 0;
}

}  // namespace

void AddCommands(CLI::App& app) {
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
}

int ReportError(int exit_code, const char* message) noexcept {
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

int RunCommandLine(int argc, char** argv) {
  ForgetFilesRead();
  try {
    return Run(argc, argv);
  } catch (const UsageError& error) {
    return ReportError(kBadArguments, error.what());
  } catch (const std::bad_alloc&) {
    return ReportError(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return ReportError(kFailure, error.what());
  }
}

}  // namespace fa::tool
