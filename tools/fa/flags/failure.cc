#include "flags/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace fa::tool {
namespace {

// Names of the C++ interface whose flags are other words.
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

/// A word of a message: "key", "softmax_max", and what follows its full stop: "shape[2]", or "" for nothing.
struct Word {
  std::string_view name, member;
};

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The word that `text` begins with. "mask.pre" is a name; "key.shape[2]" and "key[1]" are a name and a member.
Word WordOf(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && InName(text[end])) ++end;
  std::string_view rest = text.substr(end);
  if (rest.starts_with(".pre") || rest.starts_with(".next") || rest.starts_with(".prefix")) {
    for (++end; end < text.size() && InName(text[end]);) ++end;
    rest = text.substr(end);
  }
  const bool tensor = rest.starts_with(".shape") || rest.starts_with(".stride") || rest.starts_with(".dtype");
  size_t member = tensor ? rest.find_first_of("=:, )", 1) : 0;
  if (rest.starts_with('[')) member = rest.find_first_of("=:, )");
  if (member == std::string_view::npos) member = rest.size();
  return {text.substr(0, end), rest.substr(0, member)};
}

std::string FlagOf(std::string_view name, std::span<const FlagName> names) {
  for (const std::span<const FlagName> table : {names, std::span<const FlagName>(kFlags)}) {
    for (const auto& [argument, flag] : table) {
      if (name == argument) return flag;
    }
  }
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

/// Whether a word inside a message is an argument and not an English word: it has an underscore or a member, or it is a
/// tensor's name alone in parentheses.
bool IsArgument(const Word& word, char before, char after) {
  constexpr std::array<std::string_view, 3> kOneWord = {"query", "key", "value"};
  // Not so numbers, BNSD_BSND, FA_FORCE_ISA and avx512_vnni.
  const bool lower = !word.name.empty() && std::islower(static_cast<unsigned char>(word.name.front())) != 0;
  if (!lower || word.name.starts_with("avx")) return false;
  if (word.name.find_first_of("_.") != std::string_view::npos || word.member.starts_with('.')) return true;
  const bool alone = before == '(' && after == ')';
  return alone && std::find(kOneWord.begin(), kOneWord.end(), word.name) != kOneWord.end();
}

/// "0.500000" becomes "0.5". Numbers in another form stay.
std::string WithoutZeros(std::string number) {
  if (number.find('.') == std::string::npos || number.find_first_not_of("-0123456789.") != std::string::npos) {
    return number;
  }
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

/// The message from a word on, with flags for arguments: "want 7 (query.shape[2])" becomes "want 7 (shape[2] of
/// --query)".
std::string InFlags(std::string_view text, std::span<const FlagName> names) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Word word = WordOf(text.substr(at));
    const size_t size = std::max<size_t>(word.name.size() + word.member.size(), 1);
    const char before = at > 0 ? text[at - 1] : ' ', after = at + size < text.size() ? text[at + size] : ' ';
    if (IsArgument(word, before, after)) {
      if (before == '-') out.replace(out.size() - 1, 1, "minus ");
      const std::string_view member = word.member.starts_with('.') ? word.member.substr(1) : word.member;
      out += (member.empty() ? "" : std::string(member) + " of ") + FlagOf(word.name, names);
    } else {
      out += text.substr(at, size);
    }
    at += size;
  }
  return out;
}

/// "key.shape[2]=5, want 7 (query.shape[2])" becomes "--key: shape[2]=5, want 7 (shape[2] of --query)", and
/// "keep_prob=0.5, want ..." becomes "--keep-prob: 0.5, want ...".
std::string Spoken(const std::string& flag, std::string_view message, std::span<const FlagName> names) {
  const Word word = WordOf(message);
  if (word.name.starts_with("FA_")) return std::string(message);  // an environment variable, not a flag
  std::string_view rest = message.substr(word.name.size());
  if (rest.starts_with(": ")) return flag + ": " + InFlags(rest.substr(2), names);
  if (rest.starts_with(" has ")) return flag + ":" + InFlags(rest.substr(4), names);
  if (rest.starts_with('=')) {
    const size_t end = std::min(rest.find(", "), rest.size());
    return flag + ": " + WithoutZeros(std::string(rest.substr(1, end - 1))) + InFlags(rest.substr(end), names);
  }
  if (!word.member.empty()) {
    if (rest.starts_with('.')) rest.remove_prefix(1);
    return flag + ": " + InFlags(rest, names);
  }
  return flag + ": " + InFlags(message, names);
}

/// The one thing for which messages use another word than the name of an argument.
std::string WithSeed(std::string message) {
  constexpr std::string_view kSeed = "a dropout seed";
  if (const size_t at = message.find(kSeed); at != std::string::npos) message.replace(at, kSeed.size(), "--seed");
  return message;
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

void ThrowUnlessOk(const char* flag, const Status& status, std::span<const FlagName> names) {
  switch (status.code()) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: throw UsageError(WithSeed(Spoken(flag, WithoutClass(status), names)));
    case StatusCode::kOutOfMemory:
    case StatusCode::kInternal: throw Failure(status.message());
  }
}

}  // namespace

void ThrowUnlessOk(const char* flag, const Status& status) { ThrowUnlessOk(flag, status, {}); }

void ThrowUnlessOk(const Status& status) { ThrowUnlessOk(status, {}); }

void ThrowUnlessOk(const Status& status, std::span<const FlagName> names) {
  ThrowUnlessOk(FlagOf(WordOf(WithoutClass(status)).name, names).c_str(), status, names);
}

void ThrowUnlessOkFromShape(const Status& status) {
  const std::string flag = FlagOf(WordOf(WithoutClass(status)).name, {});
  if (IsMaskFlag(flag) || status.code() != StatusCode::kInvalidArgument) return ThrowUnlessOk(flag.c_str(), status);
  // The tensors have no flags of their own; --shape gives their sizes.
  std::string text(WithoutClass(status));
  for (const std::string_view member : {".shape", ".stride"}) {
    for (size_t at = text.find(member); at != std::string::npos; at = text.find(member, at)) {
      text.replace(at, 1, " ");
    }
  }
  throw UsageError("--shape: " + text);
}

}  // namespace fa::tool
