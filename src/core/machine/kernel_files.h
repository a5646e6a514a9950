#ifndef FA_CORE_KERNEL_FILES_H_
#define FA_CORE_KERNEL_FILES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fa::core {

/// What the kernel's text files below one root ("" for this machine) say. A file that is missing, unreadable or
/// malformed says nothing. Only memory of C++ is allocated: all throw std::bad_alloc and nothing else.
class KernelFiles {
 public:
  explicit KernelFiles(std::string root) : root_(std::move(root)) {}

  /// The text of a file, without the line end at its end; empty if there is none. At most 64 KiB of it.
  [[nodiscard]] std::string Text(const std::string& path) const;
  /// The whole number that a file begins with; `unit`, if given, is the character behind it ('K').
  [[nodiscard]] std::optional<int64_t> Number(const std::string& path, char* unit = nullptr) const;
  /// The numbers of a list such as "0-3,8,10-11", ascending; empty if it is malformed.
  [[nodiscard]] std::vector<int> List(const std::string& path) const;

 private:
  std::string root_;
};

/// The numbers of the text of such a list; at most kMostCpus of them, each below kMostCpus.
inline constexpr int kMostCpus = 1 << 16;
[[nodiscard]] std::vector<int> ParseCpuList(std::string_view text);

}  // namespace fa::core

#endif  // FA_CORE_KERNEL_FILES_H_
