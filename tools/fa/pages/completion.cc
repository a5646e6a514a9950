#include "pages/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace fa::tool {
namespace {

/// Returns the text in single quotes, in a form that bash, zsh and fish all read.
std::string Quoted(std::string_view text, const char* quote = "'\\''") {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? std::string(quote) : std::string(1, letter);
  return quoted + "'";
}

/// Returns the words that may follow a command's path: its subcommands, its flags and its argument.
std::vector<std::string> WordsAfter(const CommandEntry& command) {
  std::vector<std::string> words;
  for (const CommandEntry& below : command.commands) words.push_back(below.path.back());
  for (const OptionEntry& option : command.options) {
    if (option.is_flag()) {
      words.push_back(option.name);
    } else {
      words.insert(words.end(), option.choices.begin(), option.choices.end());
    }
  }
  return words;
}

/// Replaces @fa@ in the text by the program's name. Replaces @fa_@ by the name with '_' instead of '-',
/// as names of shell functions need.
std::string TextOf(const CommandEntry& program, std::string text) {
  std::string word = program.program;
  std::replace(word.begin(), word.end(), '-', '_');
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"@fa@", program.program}, {"@fa_@", word}}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
  }
  return text;
}

/// Calls `line(pattern, option)` for each flag that has a value, and returns the lines. A pattern is, for example, "run
/// forward:--layout".
template <typename Line>
std::string LinesOfValues(const CommandEntry& program, Line line) {
  std::string text;
  ForEachCommand(program, [&](const CommandEntry& command) {
    for (const OptionEntry& option : command.options) {
      if (option.is_flag() && !option.value.empty()) text += line(command.Path() + ":" + option.name, option);
    }
  });
  return text;
}

constexpr const char* kBashHead = R"(# bash completion of @fa@, made by `@fa@ completion bash`

_@fa_@() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command="" word i
  if [[ $cur == "=" ]]; then
    cur=""
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    [[ $word == -* ]] && break
    command+="${command:+ }$word"
  done
  COMPREPLY=()
)";

constexpr const char* kZshHead = R"(#compdef @fa@
# zsh completion of @fa@, made by `@fa@ completion zsh`

_@fa_@() {
  local command="" word prev=${words[CURRENT-1]}
  local -a entries
  for word in ${words[2,CURRENT-1]}; do
    [[ $word == -* ]] && break
    command+="${command:+ }$word"
  done
)";

constexpr const char* kFishHead = R"(# fish completion of @fa@, made by `@fa@ completion fish`

function __@fa_@_at
  set -l words (commandline -opc)
  set -e words[1]
  set -l command
  for word in $words
    string match -q -- '-*' $word; and break
    set -a command $word
  end
  test "$command" = "$argv"
end
complete -c @fa@ -f
)";

}  // namespace

std::string BashCompletion(const CommandEntry& program) {
  std::string text = kBashHead;
  text += "  case $command:$prev in\n";
  text += LinesOfValues(program, [](const std::string& at, const OptionEntry& option) {
    const std::string reply = option.takes_file()
                                  ? "compgen -f -- \"$cur\""
                                  : fmt::format("compgen -W '{}' -- \"$cur\"", fmt::join(option.choices, " "));
    if (!option.takes_file() && option.choices.empty()) return fmt::format("    '{}') return ;;\n", at);
    // The option `filenames` is set only for files. Otherwise a word that happens to be the name of a folder would be
    // completed as a folder.
    const char* as_files = option.takes_file() ? "compopt -o filenames 2>/dev/null; " : "";
    return fmt::format("    '{}') {}mapfile -t COMPREPLY < <({}); return ;;\n", at, as_files, reply);
  });
  text += "  esac\n  local words=\"\"\n  case $command in\n";
  ForEachCommand(program, [&](const CommandEntry& command) {
    text += fmt::format("    '{}') words='{}' ;;\n", command.Path(), fmt::join(WordsAfter(command), " "));
  });
  text +=
      "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\n"
      "complete -F _@fa_@ @fa@\n";
  return TextOf(program, text);
}

std::string ZshCompletion(const CommandEntry& program) {
  // _describe takes "word:text", in which colons of the word must be escaped. No word of the programs has a colon.
  const auto described = [](const std::string& word, const std::string& help) { return Quoted(word + ":" + help); };
  std::string text = kZshHead;
  text += "  case $command:$prev in\n";
  text += LinesOfValues(program, [](const std::string& at, const OptionEntry& option) {
    if (option.takes_file()) return fmt::format("    '{}') _files; return ;;\n", at);
    if (option.choices.empty()) return fmt::format("    '{}') _message '{}'; return ;;\n", at, option.value);
    return fmt::format("    '{}') compadd {}; return ;;\n", at, fmt::join(option.choices, " "));
  });
  text += "  esac\n  case $command in\n";
  ForEachCommand(program, [&](const CommandEntry& command) {
    text += fmt::format("    '{}') entries=(\n", command.Path());
    for (const CommandEntry& below : command.commands) {
      text += "      " + described(below.path.back(), below.text) + "\n";
    }
    for (const OptionEntry& option : command.options) {
      if (option.is_flag()) text += "      " + described(option.name, option.text) + "\n";
      for (const std::string& choice : option.choices) {
        if (!option.is_flag()) text += "      " + described(choice, option.text) + "\n";
      }
    }
    text += "    ) ;;\n";
  });
  return TextOf(program, text + "  esac\n  _describe @fa@ entries\n}\n\n_@fa_@ \"$@\"\n");
}

std::string FishCompletion(const CommandEntry& program) {
  const auto quoted = [](std::string_view text) { return Quoted(text, "\\'"); };
  std::string text = kFishHead;
  ForEachCommand(program, [&](const CommandEntry& command) {
    const std::string at = fmt::format("complete -c @fa@ -n {}", quoted("__@fa_@_at " + command.Path()));
    for (const CommandEntry& below : command.commands) {
      text += fmt::format("{} -a {} -d {}\n", at, below.path.back(), quoted(below.text));
    }
    for (const OptionEntry& option : command.options) {
      if (!option.is_flag()) {
        text += fmt::format("{} -a {} -d {}\n", at, quoted(fmt::format("{}", fmt::join(option.choices, " "))),
                            quoted(option.text));
        continue;
      }
      text += fmt::format("{} -l {}", at, option.name.substr(2));
      if (!option.short_name.empty()) text += " -s " + option.short_name.substr(1);
      if (option.takes_file()) {
        text += " -r -F";
      } else if (!option.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.value.empty()) {
        text += " -x";
      }
      text += fmt::format(" -d {}\n", quoted(option.text));
    }
  });
  return TextOf(program, text);
}

}  // namespace fa::tool
