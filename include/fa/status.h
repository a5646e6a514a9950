#ifndef FA_STATUS_H_
#define FA_STATUS_H_

#include <optional>
#include <string>
#include <utility>

#include "fa/export.h"

namespace fa {

/// What went wrong, as a class. The text of a Status names the argument, what it got and what is wanted.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  ///< the caller's mistake; nothing was written
  kOutOfMemory,      ///< an allocation failed; nothing leaked, the library stays usable
  kUnsupported,      ///< well-formed, but this machine cannot do it (a forced instruction set, say)
  kInternal,         ///< a defect of the library
};

/// The result of every call that can fail. Copying an ok status does not allocate.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  /// "invalid argument: key.shape[2]=5, want 7 (query.shape[2])"
  static Status InvalidArgument(std::string what) {
    return {StatusCode::kInvalidArgument, "invalid argument: " + std::move(what)};
  }
  static Status OutOfMemory(std::string what) {
    return {StatusCode::kOutOfMemory, "out of memory: " + std::move(what)};
  }
  static Status Unsupported(std::string what) { return {StatusCode::kUnsupported, "unsupported: " + std::move(what)}; }
  static Status Internal(std::string what) { return {StatusCode::kInternal, "internal error: " + std::move(what)}; }

  [[nodiscard]] bool ok() const { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const { return code_; }
  /// Empty when ok.
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value or the status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  /// Only when ok().
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

#endif  // FA_STATUS_H_
