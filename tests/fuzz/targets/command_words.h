#ifndef FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_
#define FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_

#include <string>
#include <vector>

#include "fuzz/targets/targets.h"

namespace fa::test {

/// A file that the valid lines read. All its elements are 1.
struct CommandFile {
  const char* name;
  char type;  ///< f: float32, i: int32, b: bool, 8: int8, x: not a .npy file
  std::vector<int64_t> shape;
};
[[nodiscard]] const std::vector<CommandFile>& CommandFiles();

/// Returns the words after "fa" of a valid line that the input chooses. Some words are changed to other options,
/// values, files and bytes. No word has a '/', and a benchmark is refused before it measures.
[[nodiscard]] std::vector<std::string> CommandWords(InputBytes& input);
/// Returns whether a run of these words would take gigabytes because the words ask for them.
[[nodiscard]] bool AsksForGigabytes(const std::vector<std::string>& words);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_
