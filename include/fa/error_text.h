#ifndef FA_ERROR_TEXT_H_
#define FA_ERROR_TEXT_H_

/// @file
/// The text of an error, with the positions of argument names in it.
/// @code{.cpp}
/// fa::AttentionArgs args;
/// args.q = fa::View(static_cast<const float*>(nullptr), {1, 8, 128, 64});
/// const fa::Status status = fa::FlashAttention(args, {});
/// // The text of the error with the argument names of another interface: "query" instead of "q".
/// const std::string text = status.what().Retold([](std::string_view name, std::string_view member, auto index) {
///   return std::string(name == "q" ? "query" : name).append(member).append(index);
/// });
/// @endcode

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fa/version.h"

namespace fa {

/// The text of an error, and the positions at which it mentions arguments. An interface with other argument names can
/// replace the mentions by its own names without searching the text.
class ErrorText {
 public:
  /// The position of one mention in the text:
  /// - text[begin, name_end) is the argument's name in the C++ interface, a field of XArgs or XOptions: "k",
  ///   "keep_prob", "mask.pre";
  /// - text[name_end, member_end) is the part of the argument: ".shape", ".dtype" or nothing;
  /// - text[member_end, end) is an index: "[2]", "[0][3]" or nothing.
  struct Mention {
    size_t begin = 0, name_end = 0, member_end = 0, end = 0;
  };

  ErrorText() = default;
  /// Makes a text that mentions no argument.
  explicit ErrorText(std::string words) : text_(std::move(words)) {}

  /// Returns a text that only mentions an argument: "k", "k.shape", "k.shape[2]".
  static ErrorText Argument(std::string_view name, std::string_view member = {}, std::string_view index = {}) {
    ErrorText error;
    error.text_.reserve(name.size() + member.size() + index.size());
    error.text_.append(name).append(member).append(index);
    const size_t member_end = name.size() + member.size();
    error.mentions_.push_back({0, name.size(), member_end, error.text_.size()});
    error.said_at_ = error.text_.size();
    return error;
  }

  // The text begins with an argument. Each of these functions appends what is wrong with that argument: "keep_prob=2",
  // "pse: missing", "cu_q has 3 entries".
  [[nodiscard]] ErrorText Is(std::string_view got) && { return std::move(*this).Saying("=", got); }
  [[nodiscard]] ErrorText Says(std::string_view words) && { return std::move(*this).Saying(": ", words); }
  [[nodiscard]] ErrorText Has(std::string_view words) && { return std::move(*this).Saying(" has ", words); }

  ErrorText& operator+=(const ErrorText& more) {
    const size_t at = text_.size();
    text_ += more.text_;
    for (const auto& [begin, name_end, member_end, end] : more.mentions_) {
      mentions_.push_back({at + begin, at + name_end, at + member_end, at + end});
    }
    return *this;
  }
  ErrorText& operator+=(std::string_view words) {
    text_ += words;
    return *this;
  }
  friend ErrorText operator+(ErrorText left, const ErrorText& right) { return std::move(left += right); }
  friend ErrorText operator+(ErrorText left, std::string_view words) { return std::move(left += words); }
  friend ErrorText operator+(std::string_view words, const ErrorText& right) {
    return std::move(ErrorText(std::string(words)) += right);
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  /// Returns all mentions, in the order of the text.
  [[nodiscard]] std::span<const Mention> mentions() const { return mentions_; }
  /// Returns the mention with which the text begins, or null if it begins with other words.
  [[nodiscard]] const Mention* subject() const {
    return !mentions_.empty() && mentions_.front().begin == 0 ? mentions_.data() : nullptr;
  }
  /// Returns the index of the first character after the "=", ": " or " has " that follows the subject.
  [[nodiscard]] size_t said_at() const { return said_at_; }

  [[nodiscard]] std::string_view Name(const Mention& mention) const { return Part(mention.begin, mention.name_end); }
  [[nodiscard]] std::string_view Member(const Mention& mention) const {
    return Part(mention.name_end, mention.member_end);
  }
  [[nodiscard]] std::string_view Index(const Mention& mention) const { return Part(mention.member_end, mention.end); }

  /// Returns the text from `begin` on, with every mention replaced by what `say` returns for it.
  /// @param say  a callable (name, member, index) that returns text
  template <typename Say>
  [[nodiscard]] std::string Retold(const Say& say, size_t begin = 0) const {
    std::string told;
    for (const Mention& mention : mentions_) {
      if (mention.begin < begin) continue;
      told += Part(begin, mention.begin);
      told += say(Name(mention), Member(mention), Index(mention));
      begin = mention.end;
    }
    return told += Part(begin, text_.size());
  }

 private:
  [[nodiscard]] std::string_view Part(size_t begin, size_t end) const {
    return std::string_view(text_).substr(begin, end - begin);
  }
  ErrorText Saying(std::string_view link, std::string_view words) && {
    text_ += link;
    said_at_ = text_.size();
    text_ += words;
    return std::move(*this);
  }

  std::string text_;
  std::vector<Mention> mentions_;
  size_t said_at_ = 0;
};

}  // namespace fa

#endif  // FA_ERROR_TEXT_H_
