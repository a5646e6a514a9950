#ifndef FA_TESTS_FUZZ_TARGETS_TARGETS_H_
#define FA_TESTS_FUZZ_TARGETS_TARGETS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace fa::test {

// Each function runs the library on one input of a fuzzer. The input may be any bytes. If the library breaks a promise,
// a signal ends the process.

/// Parses the bytes as the text of a header, then reads them as a .npy file. If the file is accepted, writes its array
/// to a new file, which must hold the same array.
void FuzzNpy(std::span<const uint8_t> input);
/// Makes a valid call of an operator, and gives its tensors and lengths any values. Planning this call must succeed or
/// return an error.
void FuzzPlans(std::span<const uint8_t> input);
/// Puts any contents into the indices, block tables and lengths that an operator reads from tensors. The call must run
/// and write only its outputs, or return an error and write nothing.
void FuzzTables(std::span<const uint8_t> input);
/// Calls the C interface from two threads. The threads make, use and destroy handles in any order, destroy some twice,
/// and use invalid ones.
void FuzzFace(std::span<const uint8_t> input);

/// Runs a command line made of words of valid lines, other words and any bytes. Either the command runs, or it prints
/// one error line and changes no file. The first call moves the process to a new folder.
void FuzzCommandLine(std::span<const uint8_t> input);

struct FuzzTarget {
  const char* name;  ///< name of the program fuzz_NAME and of the folder tests/fuzz/corpus/NAME
  void (*run)(std::span<const uint8_t> input);
};
inline constexpr FuzzTarget kFuzzTargets[] = {
    {"npy", FuzzNpy},
    {"plans", FuzzPlans},
    {"tables", FuzzTables},
    {"face", FuzzFace},
#ifdef FA_FUZZ_COMMAND_LINE  // the build has the commands of fa
    {"command_line", FuzzCommandLine},
#endif
};

/// Unless `holds`, prints the text and ends the process.
void Require(bool holds, const std::string& text);

/// Takes values from the front of an input, and zeros after its end.
class InputBytes {
 public:
  explicit InputBytes(std::span<const uint8_t> bytes) : rest_(bytes) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }
  template <typename T>
  [[nodiscard]] T Take() {
    T value{};
    const size_t size = std::min(sizeof value, rest_.size());
    if (size > 0) std::memcpy(&value, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  /// Returns a value less than `count`, which is at most 256.
  [[nodiscard]] size_t Below(size_t count) { return Take<uint8_t>() % count; }
  /// Returns a number that is mostly small, and sometimes at one end of int64_t's range.
  [[nodiscard]] int64_t Number();

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_TARGETS_TARGETS_H_
