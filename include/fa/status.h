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

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fa/export.h"

namespace fa {

class ErrorText;  // fa/error_text.h

/// Classes of errors. The text of a Status names the argument, its value and the wanted value. argument() returns the
/// argument's name alone.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  ///< a mistake of the caller; nothing was written
  kOutOfMemory,      ///< an allocation failed; nothing leaked, and the library stays usable
  kUnsupported,      ///< a valid call that this machine cannot run (for example a forced instruction set)
  kInternal,         ///< a defect of the library
};

/// The result of every call that can fail. Making, copying or reading a status never throws. An error that finds no
/// memory for its text becomes kOutOfMemory, which needs no text. Copies share their text.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  /// Makes an error of class `code`. Its message() begins with the class, such as "invalid argument: ".
  FA_API Status(StatusCode code, const ErrorText& what) noexcept;
  FA_API Status(StatusCode code, std::string_view what) noexcept;

  static Status Ok() noexcept { return {}; }
  /// Makes an error whose message is, for example, "invalid argument: k.shape[2]=5, want 7 (q.shape[2])".
  static Status InvalidArgument(const ErrorText& what) noexcept { return {StatusCode::kInvalidArgument, what}; }
  static Status InvalidArgument(std::string_view what) noexcept { return {StatusCode::kInvalidArgument, what}; }
  static Status OutOfMemory(const ErrorText& what) noexcept { return {StatusCode::kOutOfMemory, what}; }
  static Status OutOfMemory(std::string_view what) noexcept { return {StatusCode::kOutOfMemory, what}; }
  static Status Unsupported(const ErrorText& what) noexcept { return {StatusCode::kUnsupported, what}; }
  static Status Unsupported(std::string_view what) noexcept { return {StatusCode::kUnsupported, what}; }
  static Status Internal(std::string_view what) noexcept { return {StatusCode::kInternal, what}; }

  [[nodiscard]] bool ok() const noexcept { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const noexcept { return code_; }
  // The texts that the next functions return live as long as this status or a copy of it. So keep the status, not a
  // view into a temporary.

  /// Returns the text of the error, or an empty text if ok(). If there is no memory for a longer text, the message is
  /// "out of memory".
  [[nodiscard]] FA_API const std::string& message() const noexcept;
  /// Returns the beginning of message(), such as "invalid argument: ". If there was no memory for a longer text, the
  /// function returns the whole message.
  [[nodiscard]] FA_API std::string_view class_text() const noexcept;
  /// Returns the message without its class, with the positions at which it mentions arguments.
  [[nodiscard]] FA_API const ErrorText& what() const noexcept;
  /// Returns the name of the wrong argument in the C++ interface: a field of XArgs or XOptions ("k", "mask.pre"), or a
  /// parameter of the function. The name is empty if no argument is wrong.
  [[nodiscard]] FA_API std::string_view argument() const noexcept;

 private:
  struct Text;

  template <typename What>
  void KeepText(const What& make) noexcept;

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
  /// Returns the value. An assertion checks that the result is ok().
  [[nodiscard]] T& value() & { return assert(ok()), *value_; }
  [[nodiscard]] const T& value() const& { return assert(ok()), *value_; }
  [[nodiscard]] T&& value() && { return assert(ok()), std::move(*value_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace fa

/// Evaluates an expression of type fa::Status. If the status is not ok(), returns it from the calling function.
#define FA_RETURN_IF_ERROR(expression) \
  if (::fa::Status fa_status = (expression); !fa_status.ok()) return fa_status

#endif  // FA_STATUS_H_
