#ifndef FA_TESTS_FUZZ_TARGETS_TARGETS_H_
#define FA_TESTS_FUZZ_TARGETS_TARGETS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace fa::test {

// Each function takes one input of a fuzzer, any bytes, and ends the process by a signal where a promise is broken.

/// The bytes as a .npy file: it is read, or refused with a reason; what was read is written and read again alike. Then
/// the same bytes as the text of a header.
void FuzzNpy(std::span<const uint8_t> input);
/// A valid call of an operator, then changes of its tensors and lengths to any values: its plan is made or refused.
void FuzzPlans(std::span<const uint8_t> input);
/// Indices, block tables and lengths that an operator reads from tensors, with any contents: the call runs or is
/// refused, and writes only its outputs, and none when it is refused.
void FuzzTables(std::span<const uint8_t> input);
/// Calls of the C interface from two threads: handles are made, used, and destroyed in any order, twice, or never made.
void FuzzFace(std::span<const uint8_t> input);

/// A command line, from words of valid ones, other words and any bytes: it runs, or is refused in one line and leaves
/// every file as it was. The first one takes the process to a folder of its own.
void FuzzCommandLine(std::span<const uint8_t> input);

struct FuzzTarget {
  const char* name;  ///< of the program fuzz_NAME and the folder tests/fuzz/corpus/NAME
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

/// Ends the process, with the text, unless `holds`.
void Require(bool holds, const std::string& text);

/// Values from the front of an input; zeros behind its end.
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
  /// Less than `count`, which is at most 256.
  [[nodiscard]] size_t Below(size_t count) { return Take<uint8_t>() % count; }
  /// Mostly small or at the ends of the range.
  [[nodiscard]] int64_t Number();

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace fa::test

#endif  // FA_TESTS_FUZZ_TARGETS_TARGETS_H_
