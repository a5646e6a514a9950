// Completion scripts and man pages have every flag of every command. The scripts offer only values
// that the command accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "command_line.h"
#include "pages/command_tree.h"
#include "tools/cli_run.h"
#include "tools/completion_script.h"
#include "tools/scratch_folder.h"

namespace fa::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

tool::CommandEntry Tree() {
  CLI::App app;
  tool::AddCommands(app);
  return tool::ReadCommandTree(app);
}

TEST(CliCompletion, BashOffersCommandsFlagsAndValues) {
  const CompletionScript bash("fa", FA_CLI_COMMAND, "bash");
  EXPECT_THAT(bash.BashOffers("fa ''"), IsSupersetOf({"run", "plan", "bench", "info", "doctor", "completion", "man"}));
  EXPECT_THAT(bash.BashOffers("fa run sparse"), UnorderedElementsAre("sparse-forward", "sparse-backward"));
  EXPECT_THAT(bash.BashOffers("fa run forward --lay"), ElementsAre("--layout"));
  EXPECT_THAT(bash.BashOffers("fa run forward --query q --layout BS"), UnorderedElementsAre("BSND", "BSH"));
  EXPECT_THAT(bash.BashOffers("fa run sparse-forward --layout ''"), UnorderedElementsAre("BSND", "TND"));
  EXPECT_THAT(bash.BashOffers("fa plan forward --accumulation = at"), ElementsAre("atomic-free"));
  EXPECT_THAT(bash.BashOffers("fa plan forward --accumulation ="),
              UnorderedElementsAre("deterministic", "atomic-free"));
  EXPECT_THAT(bash.BashOffers("fa run forward --query t"), ElementsAre("tensor.npy"));
  EXPECT_THAT(bash.BashOffers("fa run forward --threads ''"), IsEmpty());
  EXPECT_THAT(bash.BashOffers("fa completion ''"), IsSupersetOf({"bash", "zsh", "fish"}));
  EXPECT_THAT(bash.BashOffers("fa walk ''"), IsEmpty());
}

TEST(CliCompletion, FishOffersCommandsFlagsAndValues) {
  ASSERT_EQ(RunCommand("command -v fish", "", "").exit_code, 0) << "scripts/setup.sh installs it";
  const CompletionScript fish("fa", FA_CLI_COMMAND, "fish");
  EXPECT_THAT(fish.FishOffers("fa ru"), ElementsAre("run"));
  EXPECT_THAT(fish.FishOffers("fa run sparse-"), UnorderedElementsAre("sparse-forward", "sparse-backward"));
  EXPECT_THAT(fish.FishOffers("fa run forward --lay"), ElementsAre("--layout"));
  EXPECT_THAT(fish.FishOffers("fa run sparse-forward --layout T"), ElementsAre("TND"));
  EXPECT_THAT(fish.FishOffers("fa completion z"), ElementsAre("zsh"));
}

TEST(CliCompletion, ZshReadsItsScript) {
  ASSERT_EQ(RunCommand("command -v zsh", "", "").exit_code, 0) << "scripts/setup.sh installs it";
  const CompletionScript zsh("fa", FA_CLI_COMMAND, "zsh");
  EXPECT_THAT(zsh.ZshOffers("fa ''", 2), IsSupersetOf({"run", "plan", "bench", "info", "doctor", "completion", "man"}));
  EXPECT_THAT(zsh.ZshOffers("fa run forward ''", 4), IsSupersetOf({"--layout", "--query"}));
  EXPECT_THAT(zsh.ZshOffers("fa run sparse-forward --layout ''", 5), UnorderedElementsAre("BSND", "TND"));
  EXPECT_THAT(zsh.ZshOffers("fa run forward --query ''", 5), ElementsAre("files"));
  EXPECT_THAT(zsh.ZshOffers("fa run forward --threads ''", 5), IsEmpty());
}

/// Returns the text between `begin` and the next `end`, or "" if it is not found.
std::string Between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from + begin.size()) - from - begin.size());
}

TEST(CliCompletion, EveryFlagOfEveryCommandIsInEveryScript) {
  const auto text = [](const char* shell) { return CompletionScript("fa", FA_CLI_COMMAND, shell).text(); };
  const std::string bash = text("bash"), zsh = text("zsh"), fish = text("fish");
  size_t flags = 0;
  tool::ForEachCommand(Tree(), [&](const tool::CommandEntry& command) {
    const std::string at = command.Path();
    const std::vector<std::string> bash_words = WordsOf(Between(bash, "\n    '" + at + "') words='", "'"));
    const std::string zsh_entries = Between(zsh, "\n    '" + at + "') entries=(\n", "    ) ;;\n");
    for (const tool::OptionEntry& option : command.options) {
      if (!option.is_flag()) continue;
      EXPECT_THAT(bash_words, Contains(option.name)) << at;
      EXPECT_THAT(zsh_entries, HasSubstr("'" + option.name + ":")) << at;
      ++flags;
      const std::string fish_line = "'__fa_at " + at + "' -l " + option.name.substr(2) + " ";
      EXPECT_THAT(fish, HasSubstr(fish_line));
      if (option.value.empty()) continue;
      const std::string pattern = "'" + at + ":" + option.name + "') ";
      EXPECT_THAT(bash, HasSubstr(pattern));
      EXPECT_THAT(zsh, HasSubstr(pattern));
    }
  });
  EXPECT_GT(flags, 300u);
}

/// The command accepts every value that completion offers for a flag. A call may still fail for another reason.
TEST(CliCompletion, OfferedValuesOfPlansAreAccepted) {
  int tried = 0;
  tool::ForEachCommand(Tree(), [&](const tool::CommandEntry& command) {
    if (command.path.size() != 2 || command.path[0] != "plan") return;
    for (const tool::OptionEntry& option : command.options) {
      for (const std::string& choice : option.choices) {
        std::string words = command.Path() + " " + option.name + " " + choice;
        if (option.name == "--isa") words += " --cores 2";
        if (option.name == "--strategy") words += " --ranks 2";
        if (command.path[1].find("index") != std::string::npos || command.path[1].starts_with("sparse")) {
          words += " --shape 1,8,40,90,64,32";
        } else {
          words += command.path[1] == "merge" ? "" : " --shape 1,2,2,8,8,16";
        }
        const CliResult result = RunCli(words);
        EXPECT_THAT(result.err, Not(HasSubstr(option.name + ":"))) << words;
        ++tried;
      }
    }
  });
  EXPECT_GT(tried, 100);
}

TEST(CliCompletion, BadWordsAreNamed) {
  const CliResult shell = RunCli("completion tcsh"), page = RunCli("man fa-walk");
  EXPECT_EQ(shell.exit_code, 2);
  EXPECT_EQ(shell.err, "fa: SHELL: 'tcsh', want bash, zsh or fish\n");
  EXPECT_EQ(page.exit_code, 2);
  EXPECT_THAT(page.err, AllOf(HasSubstr("PAGE: 'fa-walk'"), HasSubstr("fa-plan")));
  EXPECT_TRUE(page.HasOneLineOfError());
  const CliResult both = RunCli("man fa-plan --out /nowhere");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(both.err, "fa: PAGE: given with --out, which writes all pages\n");
}

TEST(CliMan, PagesHaveEveryFlagAndGoodTroff) {
  const ScratchFolder folder;
  ASSERT_EQ(RunCli("man --out '" + folder.Path("") + "'").exit_code, 0);
  const tool::CommandEntry fa = Tree();
  std::vector<std::string> want = {"fa.1"};
  for (const tool::CommandEntry& command : fa.commands) want.push_back("fa-" + command.path.back() + ".1");
  std::sort(want.begin(), want.end());
  EXPECT_EQ(folder.Names(), want);
  tool::ForEachCommand(fa, [&](const tool::CommandEntry& command) {
    const std::string page = folder.Read(command.path.empty() ? "fa.1" : "fa-" + command.path.front() + ".1");
    for (const char* section : {".TH fa", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n", ".SH EXIT STATUS\n"}) {
      EXPECT_THAT(page, HasSubstr(section)) << command.Path();
    }
    if (command.path.size() == 2) {
      EXPECT_THAT(page, HasSubstr("\\fBfa " + command.path[0] + " "));
    }
    for (const tool::OptionEntry& option : command.options) {
      std::string name;
      for (const char letter : option.name) name += letter == '-' ? "\\-" : std::string(1, letter);
      EXPECT_THAT(page, HasSubstr(name)) << command.Path();
    }
  });
  ASSERT_EQ(RunCommand("command -v groff", "", "").exit_code, 0) << "scripts/setup.sh installs it";
  for (const std::string& name : want) {
    const CliResult rendered = RunCommand("groff", "-man -Tascii -P-cbou -ww '" + folder.Path(name) + "'", "");
    EXPECT_EQ(rendered.exit_code, 0) << name;
    EXPECT_EQ(rendered.err, "") << name;
    EXPECT_THAT(rendered.out, HasSubstr("EXIT STATUS")) << name;
  }
}

TEST(CliMan, OnePageIsPrinted) {
  const CliResult all = RunCli("man"), run = RunCli("man fa-run");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr(".TH fa 1"));
  EXPECT_THAT(run.out, HasSubstr(".TH fa\\-run 1"));
}

}  // namespace
}  // namespace fa::test
