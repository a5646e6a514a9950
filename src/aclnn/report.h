#ifndef FA_ACLNN_REPORT_H_
#define FA_ACLNN_REPORT_H_

#include <exception>
#include <initializer_list>
#include <new>
#include <string>

#include "acl/acl.h"
#include "fa/status.h"

namespace fa::aclnn {

/// A code of the device and the text that aclGetRecentErrMsg gives for it.
struct Failure {
  aclError code = ACL_SUCCESS;
  std::string message;
};

/// Invalid arguments are 161002 whoever finds them; everything else is a failure of the run time.
[[nodiscard]] Failure FailureOf(const Status& status);

/// Keeps the message for the calling thread's aclGetRecentErrMsg. @return failure.code
aclError Report(Failure failure);
/// 0 for a status that is ok.
aclError Report(const Status& status);

struct NamedPointer {
  const char* name;
  const void* pointer;
};
/// 161001, reported, for the first null; else 0.
[[nodiscard]] aclnnStatus CheckNotNull(std::initializer_list<NamedPointer> pointers);

/// What `body` returns; nothing it throws reaches the C program.
/// @param no_memory  the code for that; there is none for a message either
template <typename Body>
aclError Guarded(const Body& body, aclError no_memory = ACL_ERROR_BAD_ALLOC) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::exception&) {
    return ACLNN_ERR_RUNTIME_ERROR;  // std::system_error: no thread for a stream
  }
}

/// Of the two phases of an operator.
template <typename Body>
aclnnStatus GuardedOperator(const Body& body) noexcept {
  return Guarded(body, ACLNN_ERR_RUNTIME_ERROR);
}

}  // namespace fa::aclnn

#endif  // FA_ACLNN_REPORT_H_
