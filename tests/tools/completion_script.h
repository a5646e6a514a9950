#ifndef FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_
#define FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_

#include <string>
#include <vector>

#include "tools/scratch_folder.h"

namespace fa::test {

/// Returns the words of a text in which white space separates them.
[[nodiscard]] std::vector<std::string> WordsOf(const std::string& text);

/// The completion script of a program, saved in a folder with a file tensor.npy. A test passes a command line whose
/// words are quoted as the shell reads them. The script completes the last word.
class CompletionScript {
 public:
  /// @param program  name of the program; the bash function is called '_' and this name, with '_' instead of '-'
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
