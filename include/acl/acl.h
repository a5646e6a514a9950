#ifndef FA_ACL_ACL_H_
#define FA_ACL_ACL_H_

/// The acl runtime on a CPU: programs written for the device compile against it and link libfa_aclnn.
///
/// These functions exist, here and in the headers that this one includes:
/// - aclInit, aclFinalize, aclGetRecentErrMsg, aclDataTypeSize, aclFloat16ToFloat, aclFloatToFloat16;
/// - aclrtSetDevice, aclrtResetDevice, aclrtGetDevice, aclrtGetDeviceCount, aclrtGetSocName, aclrtGetRunMode,
///   aclrtGetMemInfo, aclrtSynchronizeDevice, aclrtSynchronizeDeviceWithTimeout;
/// - aclrtCreateContext, aclrtDestroyContext, aclrtSetCurrentContext, aclrtGetCurrentContext, aclrtCtxSetSysParamOpt,
///   aclrtCtxGetSysParamOpt;
/// - aclrtCreateStream, aclrtCreateStreamWithConfig, aclrtDestroyStream, aclrtSynchronizeStream,
///   aclrtSynchronizeStreamWithTimeout, aclrtStreamQuery, aclrtStreamWaitEvent;
/// - aclrtCreateEvent, aclrtCreateEventWithFlag, aclrtDestroyEvent, aclrtRecordEvent, aclrtResetEvent,
///   aclrtQueryEventStatus, aclrtSynchronizeEvent, aclrtEventElapsedTime;
/// - aclrtMalloc, aclrtMallocAlign32, aclrtFree, aclrtMallocHost, aclrtFreeHost, aclrtMemcpy, aclrtMemcpy2d,
///   aclrtMemcpyAsync, aclrtMemset, aclrtMemsetAsync;
/// - aclCreateTensor, aclCreateTensorList, aclCreateScalar, aclCreateIntArray, aclCreateFloatArray, aclCreateBoolArray;
/// - aclDestroyTensor, aclDestroyTensorList, aclDestroyScalar, aclDestroyIntArray, aclDestroyFloatArray,
///   aclDestroyBoolArray;
/// - aclGetViewShape, aclGetDataType, aclGetIntArraySize;
/// - aclSetAclOpExecutorRepeatable, aclDestroyAclOpExecutor, aclSetTensorAddr, aclSetInputTensorAddr,
///   aclSetOutputTensorAddr.
///
/// The setters for lists of tensors (aclSetDynamicInputTensorAddr and its siblings) and aclSetRawTensorAddr do not
/// exist. aclnn/opdev/fp16_t.h has op::fp16_t, and securec.h has memcpy_s, memset_s and strcpy_s.
///
/// Differences from the device:
/// - There is one device, and every device number names it. Streams and memory belong to the process, not to a context.
/// - Each stream has a thread that starts the stream's operators. Operators compute on the library's threads.
/// - aclrtFree, aclrtResetDevice and aclFinalize wait for every stream, and aclrtDestroyStream waits for its own
///   stream. Waiting for an event that was never recorded does not block.
/// - Using or destroying a handle that is already destroyed returns an error code.
/// - exit waits for queued work. dlclose leaves the library in memory.
/// - A forked child has a default stream of its own and may make others. Tensors, memory and executors of the parent
///   keep working there. Calls with the parent's streams, or with events that those streams had not reached before the
///   fork, return ACL_ERROR_INVALID_PARAM.
#include "acl/acl_base.h"
#include "acl/acl_rt.h"
#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/// @param configPath  ignored
/// @return ACL_ERROR_REPEAT_INITIALIZE if aclInit was called before and aclFinalize has not been called since
ACL_FUNC_VISIBILITY aclError aclInit(const char* configPath);
/// Waits for every stream. @return ACL_ERROR_UNINITIALIZE if aclInit was not called before
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACL_ACL_H_
