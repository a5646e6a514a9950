#ifndef FA_TOOLS_FA_PAGES_COMMAND_TREE_H_
#define FA_TOOLS_FA_PAGES_COMMAND_TREE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace fa::tool {

// The tables with which CLI11 parses words and prints help, in a form that completion and man pages read.

struct OptionEntry {
  std::string name;                  ///< "--layout", or "SHELL" if the argument has no flag
  std::string short_name;            ///< "-h"; empty for most options
  std::string value;                 ///< "BSND|TND", "NPY"; empty for a flag without a value
  std::vector<std::string> choices;  ///< the words of `value`, which bars separate
  std::string text;
  bool required = false;

  [[nodiscard]] bool is_flag() const { return name.starts_with('-'); }
  [[nodiscard]] bool takes_file() const { return value == "NPY" || value == "FILE" || value == "FOLDER"; }
};

struct CommandEntry {
  std::string program;            ///< "fa"
  std::vector<std::string> path;  ///< {"run", "forward"}; empty for the program itself
  std::string text;
  std::vector<OptionEntry> options;
  std::vector<CommandEntry> commands;

  /// Returns the words of the path, joined by `between`.
  [[nodiscard]] std::string Path(const char* between = " ") const;
};

/// @param app  the top-level app of a program, whose name is the program's name
[[nodiscard]] CommandEntry ReadCommandTree(const CLI::App& app);
/// Visits the command, and then all commands below it.
void ForEachCommand(const CommandEntry& command, const std::function<void(const CommandEntry&)>& visit);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PAGES_COMMAND_TREE_H_
