#ifndef FA_CORE_KERNEL_FILES_H_
#define FA_CORE_KERNEL_FILES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fa::core {

/// Reads text files of Linux, such as those in /proc and /sys, below a root folder ("" for this machine). A file that
/// is missing, unreadable or malformed counts as empty. All functions throw std::bad_alloc and nothing else.
class KernelFiles {
 public:
  explicit KernelFiles(std::string root) : root_(std::move(root)) {}

  /// Returns the first 64 KiB of a file's text, without a line end at the end. The result is empty if there is no such
  /// file.
  [[nodiscard]] std::string Text(const std::string& path) const;
  /// Returns the whole number that a file begins with. If `unit` is not null, *unit is set to the character after the
  /// number, such as 'K'.
  [[nodiscard]] std::optional<int64_t> Number(const std::string& path, char* unit = nullptr) const;
  /// Returns the numbers of a list in a file, such as "0-3,8,10-11", ascending. The result is empty if the list is
  /// malformed.
  [[nodiscard]] std::vector<int> List(const std::string& path) const;

 private:
  std::string root_;
};

/// ParseCpuList returns the numbers of a list such as "0-3,8,10-11": at most kMostCpus numbers, each below kMostCpus.
inline constexpr int kMostCpus = 1 << 16;
[[nodiscard]] std::vector<int> ParseCpuList(std::string_view text);

}  // namespace fa::core

#endif  // FA_CORE_KERNEL_FILES_H_
