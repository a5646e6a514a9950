#include "flags/failure.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fa/error_text.h"

namespace fa::tool {
namespace {

/// A flag, and the part of its value that an error is about: "shape[2]" or "".
struct Spoken {
  std::string flag, part;
};

Spoken Speak(std::string_view name, std::string_view member, std::string_view index, std::span<const FlagName> names) {
  if (const char* flag = FindFlag(std::string(name).append(member), names); flag != nullptr) {
    return {flag, std::string(index)};
  }
  if (member.starts_with('.')) member.remove_prefix(1);
  return {FlagOf(name, names), std::string(member).append(index)};
}

/// Rewrites an error so that it names flags instead of arguments. "k.shape[2]=5, want 7 (q.shape[2])" becomes "--key:
/// shape[2]=5, want 7 (shape[2] of --query)". "keep_prob=0.5, want ..." becomes "--keep-prob: 0.5, want ...".
std::string InFlags(const ErrorText& error, std::span<const FlagName> names) {
  const auto say = [&](std::string_view name, std::string_view member, std::string_view index) {
    const auto [flag, part] = Speak(name, member, index, names);
    return part.empty() ? flag : part + " of " + flag;
  };
  const ErrorText::Mention* subject = error.subject();
  if (subject == nullptr) return error.Retold(say);
  const auto [flag, part] = Speak(error.Name(*subject), error.Member(*subject), error.Index(*subject), names);
  return flag + ": " + part + error.Retold(say, part.empty() ? error.said_at() : subject->end);
}

bool IsMaskArgument(std::string_view argument) {
  constexpr std::array<std::string_view, 5> kOfMask = {"mask.pre", "mask.next", "mask.prefix", "sparse_mode",
                                                       "dense_mask"};
  return std::find(kOfMask.begin(), kOfMask.end(), argument) != kOfMask.end();
}

}  // namespace

void ThrowUnlessOk(const Status& status, std::span<const FlagName> names) {
  switch (status.code()) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: throw UsageError(InFlags(status.what(), names));
    case StatusCode::kOutOfMemory:
    case StatusCode::kInternal: throw Failure(std::string(status.class_text()) + InFlags(status.what(), names));
  }
}

void ThrowUnlessOkFromShape(const Status& status) {
  const bool of_ranks = status.argument().starts_with("shards.") || status.argument().starts_with("machines.");
  if (IsMaskArgument(status.argument()) || of_ranks || status.code() != StatusCode::kInvalidArgument)
    return ThrowUnlessOk(status);
  // Here the tensors have no flags of their own, because --shape describes all of them. So the error begins with
  // --shape: "--shape: query shape[2]=5, want ...".
  throw UsageError("--shape: " + status.what().Retold([](auto name, auto member, auto index) {
    constexpr size_t kHyphens = 2;
    const auto [flag, part] = Speak(name, member, index, {});
    return flag.substr(kHyphens) + (part.empty() || part.front() == '[' ? part : " " + part);
  }));
}

}  // namespace fa::tool
