#ifndef FA_ACLNN_ACL_META_H_
#define FA_ACLNN_ACL_META_H_

/// What the operators take in addition to numbers: tensors, arrays of integers, executors.
#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t aclnnStatus;

#define ACLNN_SUCCESS 0
#define ACLNN_ERR_PARAM_NULLPTR 161001
#define ACLNN_ERR_PARAM_INVALID 161002
#define ACLNN_ERR_RUNTIME_ERROR 361001
#define ACLNN_ERR_INNER 561000
#define ACLNN_ERR_INNER_NULLPTR 561103

typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;

/// A view of memory that stays the caller's. Everything else is copied.
/// @param stride   in elements, any non-negative value, null: dense
/// @param offset   of the first element, in elements from data
/// @param storageDims  not read
/// @return null for null viewDims of viewDimsNum > 0 dimensions
ACL_FUNC_VISIBILITY aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                                               const int64_t* stride, int64_t offset, aclFormat format,
                                               const int64_t* storageDims, uint64_t storageDimsNum, void* data);
ACL_FUNC_VISIBILITY aclScalar* aclCreateScalar(void* value, aclDataType dataType);
ACL_FUNC_VISIBILITY aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
/// The list owns its tensors from here on.
ACL_FUNC_VISIBILITY aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);

/// Executors keep what they need, so that any of these may go as soon as the workspace size is known. Null, and what
/// is not alive, is ACLNN_ERR_PARAM_NULLPTR and ACLNN_ERR_PARAM_INVALID.
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensor(const aclTensor* tensor);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyScalar(const aclScalar* scalar);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyIntArray(const aclIntArray* array);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyTensorList(const aclTensorList* array);

/// An executor runs once and is gone, unless it was made repeatable; then it runs any number of times.
ACL_FUNC_VISIBILITY aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
ACL_FUNC_VISIBILITY aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);
/// From the next run on the executor finds that tensor at another address.
/// @param index   of the tensor among those given to the operator, in the order of its parameters
/// @param tensor  null, or the tensor given there; it gets the address too
ACL_FUNC_VISIBILITY aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                                 void* addr);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACLNN_ACL_META_H_
