#include "fa/status.h"

#include <new>
#include <utility>

#include "fa/error_text.h"

namespace fa {
namespace {

/// A constant that is never destroyed, because a status may be read while the process ends. Making it allocates no
/// memory, because a short text lies in the string object itself.
template <typename T>
union Kept {
  Kept() noexcept : value() {}
  explicit Kept(const char* short_text) noexcept : value(short_text) {}
  ~Kept() {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  T value;
};

std::string_view ClassOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "";
    case StatusCode::kInvalidArgument: return "invalid argument: ";
    case StatusCode::kOutOfMemory: return "out of memory: ";
    case StatusCode::kUnsupported: return "unsupported: ";
    case StatusCode::kInternal: return "internal error: ";
  }
  return "";
}

}  // namespace

struct Status::Text {
  std::string message;
  ErrorText what;
};

template <typename What>
void Status::KeepText(const What& make) noexcept {
  if (ok()) return;
  try {
    Text text{std::string(ClassOf(code_)), make()};
    text.message += text.what.text();
    text_ = std::make_shared<const Text>(std::move(text));
  } catch (const std::bad_alloc&) {
    code_ = StatusCode::kOutOfMemory;
  }
}

Status::Status(StatusCode code, const ErrorText& what) noexcept : code_(code) {
  KeepText([&] { return what; });
}

Status::Status(StatusCode code, std::string_view what) noexcept : code_(code) {
  KeepText([&] { return ErrorText(std::string(what)); });
}

const std::string& Status::message() const noexcept {
  static const Kept<std::string> none{""}, no_memory{"out of memory"};
  if (text_ != nullptr) return text_->message;
  return ok() ? none.value : no_memory.value;
}

std::string_view Status::class_text() const noexcept {
  const std::string_view all = message();
  return all.substr(0, all.size() - what().text().size());
}

const ErrorText& Status::what() const noexcept {
  static const Kept<ErrorText> none;
  return text_ != nullptr ? text_->what : none.value;
}

std::string_view Status::argument() const noexcept {
  const ErrorText::Mention* subject = what().subject();
  return subject != nullptr ? what().Name(*subject) : std::string_view();
}

}  // namespace fa
