#ifndef FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_
#define FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_

#include <string>
#include <vector>

#include "tools/scratch_folder.h"

namespace fa::test {

/// The text's words, between white space.
[[nodiscard]] std::vector<std::string> WordsOf(const std::string& text);

/// What a program prints for `completion SHELL`, in a file next to a tensor.npy. The words of a line are as a shell
/// reads them; the last one is not finished.
class CompletionScript {
 public:
  /// @param program  its name: the function for bash is called _NAME, with underscores
  /// @param command  runs it
  CompletionScript(std::string program, const std::string& command, const std::string& shell);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::vector<std::string> BashOffers(const std::string& words) const;
  [[nodiscard]] std::vector<std::string> FishOffers(const std::string& line) const;
  /// @param current  the number of the last word, from 1
  [[nodiscard]] std::vector<std::string> ZshOffers(const std::string& words, int current) const;

 private:
  ScratchFolder folder_;
  std::string program_, path_, text_;
};

}  // namespace fa::test

#endif  // FA_TESTS_TOOLS_COMPLETION_SCRIPT_H_
