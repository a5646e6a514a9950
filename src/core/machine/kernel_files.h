#ifndef FA_CORE_KERNEL_FILES_H_
#define FA_CORE_KERNEL_FILES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fa::core {

/// Reads the kernel's text files below one root ("" for this machine). A file that is missing, unreadable or malformed
/// counts as empty. It allocates memory only with operator new: all functions throw std::bad_alloc and nothing else.
class KernelFiles {
 public:
  explicit KernelFiles(std::string root) : root_(std::move(root)) {}

  /// The first 64 KiB of a file's text, without a line end at the end. It is empty if there is no such file.
  [[nodiscard]] std::string Text(const std::string& path) const;
  /// The whole number that a file begins with. If `unit` is given, it gets the character behind the number ('K').
  [[nodiscard]] std::optional<int64_t> Number(const std::string& path, char* unit = nullptr) const;
  /// The numbers of a list such as "0-3,8,10-11", ascending; empty if it is malformed.
  [[nodiscard]] std::vector<int> List(const std::string& path) const;

 private:
  std::string root_;
};

/// The numbers of a text in the form of such a list. There are at most kMostCpus of them, each below kMostCpus.
inline constexpr int kMostCpus = 1 << 16;
[[nodiscard]] std::vector<int> ParseCpuList(std::string_view text);

}  // namespace fa::core

#endif  // FA_CORE_KERNEL_FILES_H_
