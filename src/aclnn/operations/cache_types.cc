#include "aclnn/operations/cache_types.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "aclnn/runtime/descriptors.h"

namespace fa::aclnn {

Result<CacheForm> CacheFormOf(const char* cache_mode) {
  const std::string_view mode = cache_mode == nullptr ? "Norm" : cache_mode;
  if (mode == "Norm") return CacheForm::kBnBsND;
  if (mode == "PA_NZ") return CacheForm::kNZ;
  return Status::InvalidArgument("cacheMode=\"" + std::string(mode) + "\", want \"Norm\" or \"PA_NZ\"");
}

Status CheckSameType(const char* name, const aclTensor* tensor, const char* other_name, const aclTensor* other) {
  const auto a = FindTensor(tensor), b = FindTensor(other);
  if (a == nullptr || b == nullptr || a->dtype == b->dtype || (DTypeOf(a->dtype) && DTypeOf(b->dtype))) {
    return Status::Ok();  // the library itself compares types that DType has
  }
  return Status::InvalidArgument(std::string(other_name) + ": aclDataType " +
                                 std::to_string(static_cast<int>(b->dtype)) + ", want " +
                                 std::to_string(static_cast<int>(a->dtype)) + " (" + name + ")");
}

bool HasElements(const aclTensor* tensor) {
  const auto found = FindTensor(tensor);
  if (found == nullptr) return tensor != nullptr;  // Operands refuses a handle that is not alive
  return std::find(found->shape.begin(), found->shape.end(), 0) == found->shape.end() && !found->shape.empty();
}

}  // namespace fa::aclnn
