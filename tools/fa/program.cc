#include "program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "files/staged_file.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

const char* program_name = "fa";

/// Ends the process as after any other lack of memory. std::terminate calls this function if a destructor of
/// nlohmann::json throws. These destructors allocate (json_value::destroy), so they throw if there is no memory.
[[noreturn]] void EndWithoutMemory() noexcept {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    RemoveStagedFiles();
    _exit(Report(program_name, kFailure, "out of memory"));
  } catch (...) {
    std::abort();
  }
  std::abort();
}

/// Returns the command that the first words name. If a word is no command, the error names the word and the commands.
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

/// Refuses all options that the command does not have, in one message. CLI11 would first ask for required options. The
/// function also refuses empty values, which CLI11 would take for missing values.
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

/// Returns whether the words name a group of commands and nothing more.
bool EndsWithGroup(const CLI::App& command, int argc, char** argv) {
  const bool is_group = !command.get_subcommands([](const CLI::App*) { return true; }).empty();
  return is_group && (argc < 2 || argv[argc - 1][0] != '-');
}

[[noreturn]] void ShowHelpAndRefuse(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::string line = app.get_name();
  for (const std::string& word : words) line += ' ' + word;
  words.emplace_back("--help");
  std::reverse(words.begin(), words.end());  // CLI11 takes the words in reverse order
  try {
    app.parse(words);
  } catch (const CLI::Success& help) {
    app.exit(help);
    std::cout.flush();
  }
  throw UsageError(fmt::format("'{}' wants the name of a command", line));
}

}  // namespace

int Report(const char* program, int exit_code, const char* message) noexcept {
  char part[512];
  // The message quotes words of the command line. Control characters in these words must not reach a terminal.
  const auto shown = [](char letter) { return std::iscntrl(static_cast<unsigned char>(letter)) != 0 ? ' ' : letter; };
  std::fputs(program, stderr);
  std::fputs(": ", stderr);
  while (*message != '\0') {
    size_t size = 0;
    for (; size < sizeof part && *message != '\0'; ++message) part[size++] = shown(*message);
    std::fwrite(part, 1, size, stderr);
  }
  std::fputs("\n", stderr);
  return exit_code;
}

int ExitCodeOf(const char* program, const std::function<void()>& run) {
  try {
    run();
    return 0;
  } catch (const UsageError& error) {
    return Report(program, kBadArguments, error.what());
  } catch (const std::bad_alloc&) {
    return Report(program, kFailure, "out of memory");
  } catch (const std::exception& error) {
    return Report(program, kFailure, error.what());
  }
}

void Parse(CLI::App& app, int argc, char** argv) {
  const CLI::App& command = CommandOf(app, argc, argv);
  CheckOptionWords(command, argc, argv);
  if (EndsWithGroup(command, argc, argv)) ShowHelpAndRefuse(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    app.exit(help_or_version);
  } catch (const CLI::ExtrasError&) {
    std::string words;
    for (const std::string& word : app.remaining(/*recurse=*/true)) words += ' ' + word;
    throw UsageError("unexpected:" + words);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

void FinishOutput() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0) throw Failure("standard output: write failed");
}

void EndCleanlyWithoutMemory(const char* program) {
  program_name = program;
  std::set_terminate(EndWithoutMemory);
}

}  // namespace fa::tool
