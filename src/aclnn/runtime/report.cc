#include "aclnn/runtime/report.h"

#include <errno.h>  // program_invocation_short_name
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace fa::aclnn {
namespace {

// This text is short enough for a std::string without an allocation.
constexpr char kNoMemory[] = "out of memory";
static_assert(sizeof(kNoMemory) <= 16);

// A longer message is cut. The message lies in an array, which needs no allocation, because the message may report a
// lack of memory.
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

bool IsVariable(const char* name, const char* value) {
  const char* text = std::getenv(name);
  return text != nullptr && std::strcmp(text, value) == 0;
}

/// Returns whether the device's runtime would print an error. Levels 0 (debug) to 3 (error, the default) print errors,
/// and level 4 prints nothing.
bool ErrorsAreLogged() {
  return IsVariable("ASCEND_SLOG_PRINT_TO_STDOUT", "1") && !IsVariable("ASCEND_GLOBAL_LOG_LEVEL", "4");
}

/// Prints the recent message as a line of the device's log: "[ERROR] MODULE(PID,PROGRAM):TIME message".
void LogRecentMessage(aclError code) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char date[32];
  strftime(date, sizeof(date), "%Y-%m-%d-%H:%M:%S", &local);
  const long microseconds = now.tv_nsec / 1000;
  std::printf("[ERROR] FA(%d,%s):%s.%03ld.%03ld %d: %s\n", getpid(), program_invocation_short_name, date,
              microseconds / 1000, microseconds % 1000, code, recent_message);
  std::fflush(stdout);  // a signal may end the program next, and this output must not be lost
}

aclError Keep(aclError code, std::string_view message) {
  if (code == ACL_SUCCESS) return code;
  const size_t length = std::min(message.size(), kMessageBytes - 1);
  std::memcpy(recent_message, message.data(), length);
  recent_message[length] = '\0';
  if (ErrorsAreLogged()) LogRecentMessage(code);
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
  } catch (const std::length_error&) {  // a container would become longer than allowed
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
