#ifndef FA_TOOLS_FA_PAGES_COMMAND_TREE_H_
#define FA_TOOLS_FA_PAGES_COMMAND_TREE_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace fa::tool {

// The tables that CLI11 parses and prints help from, as completion and man pages read them.

struct OptionEntry {
  std::string name;                  ///< "--layout"; of an argument without a flag, "SHELL"
  std::string short_name;            ///< "-h", mostly empty
  std::string value;                 ///< "BSND|TND", "NPY"; empty for a flag that takes none
  std::vector<std::string> choices;  ///< the words between the bars of `value`
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

  /// The words of the path, with `between` between them.
  [[nodiscard]] std::string Path(const char* between = " ") const;
};

/// @param app  of a program: its name is the program's
[[nodiscard]] CommandEntry ReadCommandTree(const CLI::App& app);
/// The command, and then all below it.
void ForEachCommand(const CommandEntry& command, const std::function<void(const CommandEntry&)>& visit);

}  // namespace fa::tool

#endif  // FA_TOOLS_FA_PAGES_COMMAND_TREE_H_
