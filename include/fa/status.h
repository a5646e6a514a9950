#ifndef FA_STATUS_H_
#define FA_STATUS_H_

/// @file
/// The result of a call that can fail.
/// @code{.cpp}
/// const fa::Status status = fa::FlashAttention({}, {});
/// if (status.code() == fa::StatusCode::kInvalidArgument) {
///   std::printf("%s (argument %s)\n", status.message().c_str(), std::string(status.argument()).c_str());
/// }
/// @endcode

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fa/error_text.h"
#include "fa/export.h"

namespace fa {

/// Classes of errors. The text of a Status names the argument, its value and the wanted value. argument() returns the
/// argument's name alone.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  ///< a mistake of the caller; nothing was written
  kOutOfMemory,      ///< an allocation failed; nothing leaked, and the library stays usable
  kUnsupported,      ///< well-formed, but this machine cannot do it (for example a forced instruction set)
  kInternal,         ///< a defect of the library
};

/// The result of every call that can fail. To make, copy or read a status never throws. An error that finds no memory
/// for its text becomes kOutOfMemory, which needs no text. Copies share their text.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  /// An error of class `code`. Its message() begins with the name of the class.
  Status(StatusCode code, const ErrorText& what) noexcept : code_(code) {
    KeepText([&] { return what; });
  }
  Status(StatusCode code, std::string_view what) noexcept : code_(code) {
    KeepText([&] { return ErrorText(std::string(what)); });
  }

  static Status Ok() noexcept { return {}; }
  /// "invalid argument: k.shape[2]=5, want 7 (q.shape[2])"
  static Status InvalidArgument(const ErrorText& what) noexcept { return {StatusCode::kInvalidArgument, what}; }
  static Status InvalidArgument(std::string_view what) noexcept { return {StatusCode::kInvalidArgument, what}; }
  static Status OutOfMemory(const ErrorText& what) noexcept { return {StatusCode::kOutOfMemory, what}; }
  static Status OutOfMemory(std::string_view what) noexcept { return {StatusCode::kOutOfMemory, what}; }
  static Status Unsupported(const ErrorText& what) noexcept { return {StatusCode::kUnsupported, what}; }
  static Status Unsupported(std::string_view what) noexcept { return {StatusCode::kUnsupported, what}; }
  static Status Internal(std::string_view what) noexcept { return {StatusCode::kInternal, what}; }

  [[nodiscard]] bool ok() const noexcept { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const noexcept { return code_; }
  /// Empty if ok(). Without memory for a longer text it is "out of memory".
  [[nodiscard]] const std::string& message() const noexcept {
    static const Kept<std::string> none{""}, no_memory{"out of memory"};
    if (text_ != nullptr) return text_->message;
    return ok() ? none.value : no_memory.value;
  }
  // The texts below live as long as this status or a copy of it. So keep the status, not a view of a temporary's text.

  /// The beginning of message(), such as "invalid argument: ". Without memory for a longer text it is the whole
  /// message.
  [[nodiscard]] std::string_view class_text() const noexcept {
    const std::string_view all = message();
    return all.substr(0, all.size() - what().text().size());
  }
  /// The message without its class. The text knows where it mentions arguments.
  [[nodiscard]] const ErrorText& what() const noexcept {
    static const Kept<ErrorText> none;
    return text_ != nullptr ? text_->what : none.value;
  }
  /// The wrong argument, as the C++ interface calls it: a field of XArgs or XOptions ("k", "mask.pre"), or a parameter
  /// of the function. Empty if no argument is wrong.
  [[nodiscard]] std::string_view argument() const noexcept {
    const ErrorText::Mention* subject = what().subject();
    return subject != nullptr ? what().Name(*subject) : std::string_view();
  }

 private:
  struct Text {
    std::string message;
    ErrorText what;
  };
  /// A value that needs no memory to make, since short texts lie in the string itself. It is never destroyed, because a
  /// status may be read while the process ends.
  template <typename T>
  union Kept {
    Kept() noexcept : value() {}
    explicit Kept(const char* short_text) noexcept : value(short_text) {}
    ~Kept() {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    T value;
  };

  static std::string_view ClassOf(StatusCode code) {
    switch (code) {
      case StatusCode::kOk: return "";
      case StatusCode::kInvalidArgument: return "invalid argument: ";
      case StatusCode::kOutOfMemory: return "out of memory: ";
      case StatusCode::kUnsupported: return "unsupported: ";
      case StatusCode::kInternal: return "internal error: ";
    }
    return "";
  }

  template <typename What>
  void KeepText(const What& make) noexcept {
    if (ok()) return;
    try {
      Text text{std::string(ClassOf(code_)), make()};
      text.message += text.what.text();
      text_ = std::make_shared<const Text>(std::move(text));
    } catch (const std::bad_alloc&) {
      code_ = StatusCode::kOutOfMemory;
    }
  }

  StatusCode code_ = StatusCode::kOk;
  std::shared_ptr<const Text> text_;
};

/// A value, or the status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  /// The value; call it only if ok().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace fa

/// Evaluates an expression of type fa::Status and returns it from the calling function unless it is ok().
#define FA_RETURN_IF_ERROR(expression) \
  if (::fa::Status fa_status = (expression); !fa_status.ok()) return fa_status

#endif  // FA_STATUS_H_
