#ifndef FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_
#define FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_

#include <string>
#include <vector>

#include "fuzz/targets/targets.h"

namespace fa::test {

/// A file that the valid command lines of CommandWords read. If it is a .npy file, all its elements are 1.
struct CommandFile {
  const char* name;
  char type;  ///< f: float32, i: int32, b: bool, 8: int8, x: not a .npy file
  std::vector<int64_t> shape;
};
[[nodiscard]] const std::vector<CommandFile>& CommandFiles();

/// Returns the words after "fa" of a valid line. The input chooses the line, and replaces some words by other options,
/// values, files and bytes. No word has a '/', so no file outside the folder is reached. A benchmark gets --seconds=0,
/// so that it measures nothing.
[[nodiscard]] std::vector<std::string> CommandWords(InputBytes& input);
/// Returns whether the words ask for a run that would take gigabytes.
[[nodiscard]] bool AsksForGigabytes(const std::vector<std::string>& words);

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_TARGETS_COMMAND_WORDS_H_
