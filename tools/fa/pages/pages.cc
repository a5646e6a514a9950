// The commands `completion` and `man` print what a shell or man(1) needs to know about a program's commands.

#include <fmt/format.h>

#include <memory>
#include <string>

#include "commands.h"
#include "files/output_files.h"
#include "flags/failure.h"
#include "pages/command_tree.h"
#include "pages/completion.h"
#include "pages/man_page.h"

namespace fa::tool {
namespace {

struct Shell {
  const char* name;
  std::string (*completion)(const CommandEntry& program);
};
constexpr Shell kShells[] = {{"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}};

void PrintCompletion(const CLI::App& app, const std::string& name) {
  for (const Shell& shell : kShells) {
    if (name == shell.name) {
      fmt::print("{}", shell.completion(ReadCommandTree(app)));
      return;
    }
  }
  throw UsageError(fmt::format("SHELL: '{}', want bash, zsh or fish", name));
}

struct ManFlags {
  std::string page, folder;
};

void WritePages(const std::vector<ManPage>& pages, const std::string& folder) {
  OutputFiles files;
  for (const ManPage& page : pages) files.Set(files.Add("--out", folder + "/" + page.name + ".1"), page.text);
  files.Commit();
}

void RunMan(const CLI::App& app, const ManFlags& flags) {
  const std::vector<ManPage> pages = ManPages(ReadCommandTree(app));
  if (!flags.folder.empty()) {
    if (!flags.page.empty()) throw UsageError("PAGE: given with --out, which writes all pages");
    return WritePages(pages, flags.folder);
  }
  const std::string wanted = flags.page.empty() ? app.get_name() : flags.page;
  std::string names;
  for (const ManPage& page : pages) {
    if (page.name == wanted) {
      fmt::print("{}", page.text);
      return;
    }
    names += " " + page.name;
  }
  throw UsageError(fmt::format("PAGE: '{}', want one of:{}", wanted, names));
}

}  // namespace

void AddCompletion(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "completion", fmt::format("Print a script by which a shell completes words of {}", app.get_name()));
  const auto name = std::make_shared<std::string>();
  command->add_option("SHELL", *name, "The shell")->type_name("bash|zsh|fish")->required();
  command->callback([&app, name] { PrintCompletion(app, *name); });
}

void AddMan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("man", "Print a man page, or write all of them");
  const auto flags = std::make_shared<ManFlags>();
  command->add_option("PAGE", flags->page, fmt::format("The page, default {}", app.get_name()))->type_name("NAME");
  command->add_option("--out", flags->folder, "Write all pages to this folder")->type_name("FOLDER");
  command->callback([&app, flags] { RunMan(app, *flags); });
}

}  // namespace fa::tool
