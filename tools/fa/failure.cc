#include "failure.h"

namespace fa::tool {
namespace {

void Throw(StatusCode code, const std::string& message) {
  switch (code) {
    case StatusCode::kOk: return;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: throw UsageError(message);
    case StatusCode::kOutOfMemory:
    case StatusCode::kInternal: throw Failure(message);
  }
}

}  // namespace

void ThrowUnlessOk(const Status& status) { Throw(status.code(), status.message()); }
void ThrowUnlessOk(const char* flag, const Status& status) {
  Throw(status.code(), std::string(flag) + ": " + status.message());
}

}  // namespace fa::tool
