#include "core/machine/kernel_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace fa::core {
namespace {

constexpr size_t kMostBytes = size_t{64} << 10;

// A file that is open for reading. The streams of C and C++ are not used, because without free memory some of their
// failures look like an empty file.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  /// Returns the number of bytes read, which is 0 at the end and after an error.
  [[nodiscard]] size_t Read(char* into, size_t bytes) const {
    const ssize_t got = number_ < 0 ? 0 : ::read(number_, into, bytes);
    return got < 0 ? 0 : static_cast<size_t>(got);
  }

 private:
  int number_;
};

/// Takes a number >= 0 from the front of `text`. Returns nothing if there is none.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kMostCpus) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool TakeCharacter(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::vector<int> ParseCpuList(std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::optional<int> first = TakeNumber(text);
    const std::optional<int> last = first && TakeCharacter(text, '-') ? TakeNumber(text) : first;
    if (!first || !last || *last < *first) return {};
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
    if (!TakeCharacter(text, ',') && !text.empty()) return {};
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string KernelFiles::Text(const std::string& path) const {
  const Descriptor file(root_ + path);
  std::string text;
  char part[1024];
  while (const size_t got = text.size() < kMostBytes ? file.Read(part, sizeof part) : 0) text.append(part, got);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<int64_t> KernelFiles::Number(const std::string& path, char* unit) const {
  const std::string text = Text(path);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  if (unit != nullptr) *unit = end == text.data() + text.size() ? '\0' : *end;
  return number;
}

std::vector<int> KernelFiles::List(const std::string& path) const { return ParseCpuList(Text(path)); }

}  // namespace fa::core
