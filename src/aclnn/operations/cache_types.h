#ifndef FA_ACLNN_CACHE_TYPES_H_
#define FA_ACLNN_CACHE_TYPES_H_

#include "acl/acl.h"
#include "aclnn/runtime/operands.h"
#include "fa/cache_rows.h"
#include "fa/status.h"

namespace fa::aclnn {

/// Returns the form that cacheMode "Norm" or "PA_NZ" names. Null stands for "Norm".
[[nodiscard]] Result<CacheForm> CacheFormOf(const char* cache_mode);

/// Returns how a cache is added to Operands. Only caches of the form NZ may have ACL_FORMAT_FRACTAL_NZ.
[[nodiscard]] inline Operands::Form CacheOperandForm(CacheForm form) {
  return form == CacheForm::kNZ ? Operands::Form::kChunks : Operands::Form::kBytes;
}

/// Checks that two tensors have the same aclDataType. If DType has both types, the library compares them instead.
[[nodiscard]] Status CheckSameType(const char* name, const aclTensor* tensor, const char* other_name,
                                   const aclTensor* other);

[[nodiscard]] bool HasElements(const aclTensor* tensor);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_CACHE_TYPES_H_
