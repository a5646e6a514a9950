#include "flags/flag_values.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "flags/failure.h"

namespace fa::tool {

std::vector<int64_t> ParseIntegers(const char* flag, const std::string& text) {
  std::vector<int64_t> values;
  std::string_view rest = text;
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw UsageError(fmt::format("{}: '{}' in '{}', want integers with commas between", flag, word, text));
    }
    values.push_back(value);
    if (word.size() == rest.size()) return values;
    rest.remove_prefix(word.size() + 1);
  }
}

uint64_t ParseUnsigned(const char* flag, const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  throw UsageError(fmt::format("{}: '{}', want an integer from 0 to 2^64-1", flag, text));
}

int64_t HeadNumber(std::optional<int64_t> given) {
  if (given && *given < 1) throw UsageError(fmt::format("--head-num: {}, want at least 1", *given));
  return given.value_or(0);
}

void CheckHeadSize(const char* flag, const char* name, int64_t size) {
  if (size < 1 || size > 1024) throw UsageError(fmt::format("{}: {}={}, want 1 to 1024", flag, name, size));
}

void CheckListedSequences(const char* flag, int64_t sequences) {
  constexpr int64_t kMost = int64_t{1} << 27;  // a list of so many int64_t takes 1 GiB
  if (sequences > kMost) throw UsageError(fmt::format("{}: B={}, want at most {}", flag, sequences, kMost));
}

Layout ParseLayout(const std::string& text) {
  for (const Layout layout :
       {Layout::kBNSD, Layout::kBSND, Layout::kBSH, Layout::kSBH, Layout::kTND, Layout::kBNSD_BSND}) {
    if (text == Name(layout)) return layout;
  }
  throw UsageError(fmt::format("--layout: '{}', want BNSD, BSND, BSH, SBH, TND or BNSD_BSND", text));
}

DType ParseFloatType(const std::string& text) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (text == Name(dtype)) return dtype;
  }
  throw UsageError(fmt::format("--dtype: '{}', want f32, f16 or bf16", text));
}

}  // namespace fa::tool
