#include "pages/man_page.h"

#include <fmt/format.h>

#include <string_view>

#include "fa/version.h"

namespace fa::tool {
namespace {

/// Returns the text with troff's escapes. Hyphens can then be searched and copied, and no line is a control line.
std::string Escaped(std::string_view text) {
  std::string escaped;
  if (!text.empty() && (text.front() == '.' || text.front() == '\'')) escaped = "\\&";
  for (const char letter : text) {
    switch (letter) {
      case '\\': escaped += "\\e"; break;
      case '-': escaped += "\\-"; break;
      case '\'': escaped += "\\(aq"; break;
      case '^': escaped += "\\(ha"; break;
      case '~': escaped += "\\(ti"; break;
      case '|': escaped += "|\\:"; break;  // a line may break here
      default: escaped += letter;
    }
  }
  return escaped;
}

std::string Bold(std::string_view text) { return "\\fB" + Escaped(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Escaped(text) + "\\fR"; }

/// Returns an entry of a list: a word and its text.
std::string Item(const std::string& word, const std::string& text) { return ".TP\n" + word + "\n" + text + "\n"; }

std::string OptionText(const OptionEntry& option) {
  std::string word = option.short_name.empty() ? "" : Bold(option.short_name) + ", ";
  word += option.is_flag() ? Bold(option.name) : Italic(option.name);
  if (option.is_flag() && !option.value.empty()) word += " " + Italic(option.value);
  std::string text = Escaped(option.text);
  if (!option.is_flag()) text += ": " + Escaped(option.value);
  if (option.required && option.is_flag()) text += " (required)";
  return Item(word, text);
}

/// Returns the name of the page: "fa-run" for `fa run` and for the commands below it.
std::string PageName(const CommandEntry& command) {
  return command.path.empty() ? command.program : command.program + "-" + command.path.front();
}

/// Returns the synopsis: "fa run forward [OPTION]...".
std::string Synopsis(const CommandEntry& command) {
  std::string line = Bold(command.path.empty() ? command.program : command.program + " " + command.Path());
  if (!command.commands.empty()) line += " " + Italic(command.path.empty() ? "COMMAND" : "OPERATOR");
  for (const OptionEntry& option : command.options) {
    if (!option.is_flag()) line += option.required ? " " + Italic(option.name) : " [" + Italic(option.name) + "]";
  }
  return line + " [" + Italic("OPTION") + "]...\n";
}

std::string OptionList(const CommandEntry& command) {
  std::string text;
  for (const OptionEntry& option : command.options) text += OptionText(option);
  return text;
}

std::string Tail(const CommandEntry& program, const std::string& name) {
  std::string text = ".SH EXIT STATUS\n";
  text += Item("0", "Done.");
  text += Item("1", "A file or the memory is at fault, or there is a defect; one line on stderr says which.");
  text += Item("2", "An argument is at fault; one line on stderr names it.");
  text += ".SH ENVIRONMENT\n";
  text += Item(Bold("FA_NUM_THREADS"), "Threads where " + Bold("--threads") + " gives none.");
  text += Item(Bold("FA_FORCE_ISA"), "The instruction\\-set level where " + Bold("--isa") + " gives none.");
  text += Item(Bold("FA_ASSUME_ISA"), "A level that the CPU has although its hypervisor hides it.");
  text += Item(Bold("FA_PORTABLE_BLAS"), "1: OpenBLAS computes the products of the portable level.");
  text += Item(Bold("NO_COLOR"), "Not empty: no colours on a terminal either.");
  text += ".SH SEE ALSO\n";
  std::vector<std::string> others = {"fa", program.program};
  for (const CommandEntry& command : program.commands) others.push_back(PageName(command));
  std::string list;
  for (size_t i = program.program == "fa" ? 1 : 0; i < others.size(); ++i) {
    if (others[i] != name) list += (list.empty() ? "" : ",\n") + Bold(others[i]) + "(1)";
  }
  return text + list + "\n";
}

ManPage PageOf(const CommandEntry& program, const CommandEntry& command) {
  const std::string name = PageName(command);
  std::string text =
      fmt::format(".TH {} 1 \"\" \"fa {}\" \"User Commands\"\n.ad l\n.nh\n", Escaped(name), FA_VERSION_STRING);
  text += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}", Escaped(name), Escaped(command.text), Synopsis(command));
  text += ".SH DESCRIPTION\n" + Escaped(command.text) + ".\n";
  if (!command.path.empty() && command.path.front() == "run") {
    text +=
        "Files are NumPy's .npy. float32 and float16 are known from the file; bfloat16 is a uint16 file of bits "
        "with\n" +
        Bold("--dtype bf16") + ". Output files are complete, or as they were before.\n";
  }
  if (command.path.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandEntry& below : command.commands) text += Item(Bold(below.path.back()), Escaped(below.text) + ".");
  }
  text += ".SH OPTIONS\n" + OptionList(command);
  if (!command.path.empty()) {
    for (const CommandEntry& below : command.commands) {
      text += fmt::format(".SH {}\n{}.PP\n{}.\n{}", Escaped(below.path.back()), Synopsis(below), Escaped(below.text),
                          OptionList(below));
    }
  }
  return {name, text + Tail(program, name)};
}

}  // namespace

std::vector<ManPage> ManPages(const CommandEntry& program) {
  std::vector<ManPage> pages = {PageOf(program, program)};
  for (const CommandEntry& command : program.commands) pages.push_back(PageOf(program, command));
  return pages;
}

}  // namespace fa::tool
