#include "aclnn/runtime/report.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace fa::aclnn {
namespace {

// A std::string holds this text without an allocation.
constexpr char kNoMemory[] = "out of memory";
static_assert(sizeof(kNoMemory) <= 16);

// A longer message loses its end. An array has no constructor or destructor, so a thread's message needs no memory. A
// lack of memory may be what the message is about.
constexpr size_t kMessageBytes = 1024;
thread_local char recent_message[kMessageBytes];

aclError CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return ACL_SUCCESS;
    case StatusCode::kInvalidArgument: return ACLNN_ERR_PARAM_INVALID;
    case StatusCode::kInternal: return ACLNN_ERR_INNER;
    case StatusCode::kOutOfMemory:
    case StatusCode::kUnsupported: break;
  }
  return ACLNN_ERR_RUNTIME_ERROR;
}

aclError Keep(aclError code, std::string_view message) {
  if (code == ACL_SUCCESS) return code;
  const size_t length = std::min(message.size(), kMessageBytes - 1);
  std::memcpy(recent_message, message.data(), length);
  recent_message[length] = '\0';
  return code;
}

}  // namespace

Failure FailureOf(const Status& status) noexcept {
  try {
    return {CodeOf(status.code()), std::string(status.message())};
  } catch (const std::bad_alloc&) {
    return {CodeOf(status.code()), kNoMemory};
  }
}

Failure FailureOfException(aclError no_memory) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {no_memory, kNoMemory};
  } catch (const std::length_error&) {  // a container that would become longer than allowed
    return {no_memory, kNoMemory};
  } catch (const std::system_error&) {
    return {no_memory, "no thread"};
  } catch (...) {
    return {ACLNN_ERR_INNER, "inner error"};
  }
}

aclError Report(const Failure& failure) noexcept { return Keep(failure.code, failure.message); }

aclError Report(const Status& status) noexcept { return Keep(CodeOf(status.code()), status.message()); }

aclnnStatus CheckNotNull(std::initializer_list<NamedPointer> pointers) {
  for (const auto& [name, pointer] : pointers) {
    if (pointer == nullptr) return Report({ACLNN_ERR_PARAM_NULLPTR, std::string(name) + ": null"});
  }
  return ACLNN_SUCCESS;
}

}  // namespace fa::aclnn

const char* aclGetRecentErrMsg() { return fa::aclnn::recent_message; }
