#ifndef FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_
#define FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_

#include <string>
#include <vector>

#include "tools/scratch_folder.h"

namespace fa::test {

/// Returns the words of the text, which white space separates.
[[nodiscard]] std::vector<std::string> WordsOf(const std::string& text);

/// The completion script that a program's `completion SHELL` prints, in a folder that also has a file tensor.npy. The
/// words of a line are given as a shell reads them, and the last word is unfinished.
class CompletionScript {
 public:
  /// @param program  name of the program; the function for bash is _NAME, with underscores
  /// @param command  the command that runs the program
  CompletionScript(std::string program, const std::string& command, const std::string& shell);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::vector<std::string> BashOffers(const std::string& words) const;
  [[nodiscard]] std::vector<std::string> FishOffers(const std::string& line) const;
  /// @param current  the number of the last word, counted from 1
  [[nodiscard]] std::vector<std::string> ZshOffers(const std::string& words, int current) const;

 private:
  ScratchFolder folder_;
  std::string program_, path_, text_;
};

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_
