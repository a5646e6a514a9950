#ifndef FA_ACLNN_REPORT_H_
#define FA_ACLNN_REPORT_H_

#include <initializer_list>
#include <string>

#include "acl/acl.h"
#include "aclnn/runtime/default_fp_environment.h"
#include "fa/status.h"

namespace fa::aclnn {

/// An error code of the device and its text for aclGetRecentErrMsg.
struct Failure {
  aclError code = ACL_SUCCESS;
  std::string message;
};

/// Returns the device's failure for a status. Invalid arguments have code 161002, whichever part of the library finds
/// them. All other statuses have a code of the runtime. If there is no memory for the message, the code is still right.
[[nodiscard]] Failure FailureOf(const Status& status) noexcept;
/// Returns the failure for the exception that is being handled; call it only in a catch block. A lack of memory or of
/// threads gives the code `no_memory`.
[[nodiscard]] Failure FailureOfException(aclError no_memory) noexcept;

/// Keeps the message for the calling thread's aclGetRecentErrMsg. @return failure.code
aclError Report(const Failure& failure) noexcept;
/// Reports the failure of a status and returns its code. Returns 0 for a status that is ok.
aclError Report(const Status& status) noexcept;

struct NamedPointer {
  const char* name;
  const void* pointer;
};
/// Reports and returns 161001 for the first null pointer. Returns 0 if no pointer is null.
[[nodiscard]] aclnnStatus CheckNotNull(std::initializer_list<NamedPointer> pointers);

/// Calls `body` and returns what it returns. Exceptions of `body` do not reach the C program. `body` and the threads
/// that it makes run with default floating-point settings, whatever the program has set.
template <typename Body>
aclError Guarded(const Body& body, aclError no_memory = ACL_ERROR_BAD_ALLOC) noexcept {
  const DefaultFpEnvironment environment;
  try {
    return body();
  } catch (...) {
    return Report(FailureOfException(no_memory));
  }
}

/// Works like Guarded for the two phases of an operator, which report a lack of memory with another code.
template <typename Body>
aclnnStatus GuardedOperator(const Body& body) noexcept {
  return Guarded(body, ACLNN_ERR_RUNTIME_ERROR);
}

}  // namespace fa::aclnn

#endif  // FA_ACLNN_REPORT_H_
