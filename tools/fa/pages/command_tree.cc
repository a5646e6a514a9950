#include "pages/command_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace fa::tool {
namespace {

std::vector<std::string> ChoicesOf(const std::string& value) {
  std::vector<std::string> choices;
  if (value.find('|') == std::string::npos) return choices;
  for (size_t at = 0; at <= value.size();) {
    const size_t end = std::min(value.find('|', at), value.size());
    choices.push_back(value.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

OptionEntry EntryOf(const CLI::Option& option) {
  OptionEntry entry;
  entry.name = option.get_lnames().empty() ? option.get_name() : "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) entry.short_name = "-" + option.get_snames().front();
  if (option.get_items_expected_max() > 0) entry.value = option.get_type_name();
  entry.choices = ChoicesOf(entry.value);
  entry.text = option.get_description();
  entry.required = option.get_required();
  return entry;
}

CommandEntry Read(const CLI::App& app, const std::string& program, std::vector<std::string> path) {
  CommandEntry entry = {
      .program = program, .path = std::move(path), .text = app.get_description(), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) entry.options.push_back(EntryOf(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> below = entry.path;
    below.push_back(command->get_name());
    entry.commands.push_back(Read(*command, program, std::move(below)));
  }
  return entry;
}

}  // namespace

std::string CommandEntry::Path(const char* between) const { return fmt::format("{}", fmt::join(path, between)); }

CommandEntry ReadCommandTree(const CLI::App& app) { return Read(app, app.get_name(), {}); }

void ForEachCommand(const CommandEntry& command, const std::function<void(const CommandEntry&)>& visit) {
  visit(command);
  for (const CommandEntry& below : command.commands) ForEachCommand(below, visit);
}

}  // namespace fa::tool
