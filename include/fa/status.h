#ifndef FA_STATUS_H_
#define FA_STATUS_H_

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
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

/// The result of every call that can fail. Making, copying and reading one never throws: an error whose text finds no
/// memory is kOutOfMemory, which can do without. Copies share their text.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(StatusCode code, std::string_view message) noexcept : Status(code, {}, message) {}

  static Status Ok() noexcept { return {}; }
  /// "invalid argument: key.shape[2]=5, want 7 (query.shape[2])"
  static Status InvalidArgument(std::string_view what) noexcept {
    return {StatusCode::kInvalidArgument, "invalid argument: ", what};
  }
  static Status OutOfMemory(std::string_view what) noexcept {
    return {StatusCode::kOutOfMemory, "out of memory: ", what};
  }
  static Status Unsupported(std::string_view what) noexcept {
    return {StatusCode::kUnsupported, "unsupported: ", what};
  }
  static Status Internal(std::string_view what) noexcept { return {StatusCode::kInternal, "internal error: ", what}; }

  [[nodiscard]] bool ok() const noexcept { return code_ == StatusCode::kOk; }
  [[nodiscard]] StatusCode code() const noexcept { return code_; }
  /// Empty when ok; "out of memory" where there was none for more.
  [[nodiscard]] const std::string& message() const noexcept {
    static const Kept none(""), no_memory("out of memory");
    if (text_ != nullptr) return *text_;
    return ok() ? none.text : no_memory.text;
  }

 private:
  /// A text that lies in the string itself, and is never destroyed: a status may be read while the process ends.
  union Kept {
    explicit Kept(const char* short_text) noexcept : text(short_text) {}
    ~Kept() {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    std::string text;
  };

  Status(StatusCode code, std::string_view kind, std::string_view what) noexcept : code_(code) {
    if (ok()) return;
    try {
      std::string text;
      text.reserve(kind.size() + what.size());
      text.append(kind).append(what);
      text_ = std::make_shared<const std::string>(std::move(text));
    } catch (const std::bad_alloc&) {
      code_ = StatusCode::kOutOfMemory;
    }
  }

  StatusCode code_ = StatusCode::kOk;
  std::shared_ptr<const std::string> text_;
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
