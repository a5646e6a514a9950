#include "tools/completion_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "tools/cli_run.h"

namespace fa::test {

std::vector<std::string> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

namespace {

std::vector<std::string> Offers(const CliResult& result, const std::string& words) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "") << words;
  return WordsOf(result.out);
}

}  // namespace

CompletionScript::CompletionScript(std::string program, const std::string& command, const std::string& shell)
    : program_(std::move(program)) {
  const CliResult result = RunCommand(command, "completion " + shell, "");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  path_ = folder_.Write("script", result.out);
  text_ = result.out;
  (void)folder_.Write("tensor.npy", "");
}

std::vector<std::string> CompletionScript::BashOffers(const std::string& words) const {
  std::string function = "_" + program_;
  std::replace(function.begin(), function.end(), '-', '_');
  const std::string program = "source '" + path_ + "'; COMP_WORDS=(" + words +
                              "); COMP_CWORD=\\$((\\${#COMP_WORDS[@]} - 1)); " + function + "; echo \\${COMPREPLY[*]}";
  return Offers(RunCommand("cd '" + folder_.Path("") + "' && bash", "-c \"" + program + "\"", ""), words);
}

std::vector<std::string> CompletionScript::FishOffers(const std::string& line) const {
  const std::string program = "source '" + path_ + "'; complete -C '" + line + "' | cut -f1";
  return Offers(RunCommand("HOME='" + folder_.Path("") + "' fish", "--no-config -c \"" + program + "\"", ""), line);
}

std::vector<std::string> CompletionScript::ZshOffers(const std::string& words, int current) const {
  // Functions that print their arguments replace zsh's builtins for completion.
  const std::string program =
      "compadd() { print -l -- \\$@ }; _files() { print files }; _message() { }; "
      "_describe() { print -l -- \\${(P)2%%:*} }; words=(" +
      words + "); CURRENT=" + std::to_string(current) + "; source '" + path_ + "'";
  return Offers(RunCommand("zsh", "-fc \"" + program + "\"", ""), words);
}

}  // namespace fa::test
