#include "aclnn/report.h"

#include <utility>

namespace fa::aclnn {
namespace {

std::string& RecentMessage() {
  thread_local std::string message;
  return message;
}

}  // namespace

Failure FailureOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return {};
    case StatusCode::kInvalidArgument: return {ACLNN_ERR_PARAM_INVALID, status.message()};
    case StatusCode::kInternal: return {ACLNN_ERR_INNER, status.message()};
    case StatusCode::kOutOfMemory:
    case StatusCode::kUnsupported: break;
  }
  return {ACLNN_ERR_RUNTIME_ERROR, status.message()};
}

aclError Report(Failure failure) {
  if (failure.code != ACL_SUCCESS) RecentMessage() = std::move(failure.message);
  return failure.code;
}

aclError Report(const Status& status) { return Report(FailureOf(status)); }

aclnnStatus CheckNotNull(std::initializer_list<NamedPointer> pointers) {
  for (const auto& [name, pointer] : pointers) {
    if (pointer == nullptr) return Report({ACLNN_ERR_PARAM_NULLPTR, std::string(name) + ": null"});
  }
  return ACLNN_SUCCESS;
}

}  // namespace fa::aclnn

const char* aclGetRecentErrMsg() { return fa::aclnn::RecentMessage().c_str(); }
