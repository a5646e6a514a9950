#include "failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fa::tool {
namespace {

// Names of the C++ interface that are not the flag's words with underscores.
constexpr FlagName kFlags[] = {
    {"mask.pre", "--pre-tokens"},
    {"mask.next", "--next-tokens"},
    {"mask.prefix", "--prefix"},
    {"dense_mask", "--atten-mask"},
    {"heads", "--head-num"},
    {"cu_q", "--actual-seq-qlen"},
    {"cu_kv", "--actual-seq-kvlen"},
    {"lengths_q", "--actual-seq-lengths"},
    {"lengths_kv", "--actual-seq-lengths-kv"},
    {"dropout", "--seed"},
    {"d_out", "--dout"},
};

/// "key.shape[2]=5, want ...": --key.
std::string FlagOf(std::string_view message, std::span<const FlagName> names = {}) {
  for (const std::span<const FlagName> table : {names, std::span<const FlagName>(kFlags)}) {
    for (const auto& [name, flag] : table) {
      if (message.starts_with(name) && message.find_first_of(".=:[ ", name.size()) == name.size()) return flag;
    }
  }
  std::string flag = "--" + std::string(message.substr(0, message.find_first_of(".=:[ ")));
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool IsMaskFlag(const std::string& flag) {
  constexpr std::array<std::string_view, 5> kMaskFlags = {"--pre-tokens", "--next-tokens", "--prefix", "--sparse-mode",
                                                          "--atten-mask"};
  return std::find(kMaskFlags.begin(), kMaskFlags.end(), flag) != kMaskFlags.end();
}

std::string_view WithoutClass(const Status& status) {
  constexpr std::string_view kClass = "invalid argument: ";
  const std::string_view message = status.message();
  return message.starts_with(kClass) ? message.substr(kClass.size()) : message;
}

}  // namespace

void ThrowUnlessOk(const char* flag, const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: throw UsageError(fmt::format("{}: {}", flag, WithoutClass(status)));
    case StatusCode::kOutOfMemory:
    case StatusCode::kInternal: throw Failure(status.message());
  }
}

void ThrowUnlessOk(const Status& status) { ThrowUnlessOk(status, {}); }

void ThrowUnlessOk(const Status& status, std::span<const FlagName> names) {
  ThrowUnlessOk(FlagOf(WithoutClass(status), names).c_str(), status);
}

void ThrowUnlessOkFromShape(const Status& status) {
  const std::string flag = FlagOf(WithoutClass(status));
  ThrowUnlessOk(IsMaskFlag(flag) ? flag.c_str() : "--shape", status);
}

}  // namespace fa::tool
