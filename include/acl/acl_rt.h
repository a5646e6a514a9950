#ifndef FA_ACL_ACL_RT_H_
#define FA_ACL_ACL_RT_H_

/// The part of the acl runtime that programs around attention use. "Device" memory is host memory. A stream is an
/// in-order queue with a thread of its own. Any thread may call every function. See docs/aclnn.md.
#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum aclrtMemcpyKind {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
} aclrtMemcpyKind;

typedef enum aclrtMemMallocPolicy {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
  ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x0100,
  ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
} aclrtMemMallocPolicy;

typedef enum aclrtMemAttr {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5,
  ACL_DDR_MEM_P2P_HUGE = 6,
  ACL_DDR_MEM_P2P_NORMAL = 7,
  ACL_HBM_MEM_P2P_HUGE = 8,
  ACL_HBM_MEM_P2P_NORMAL = 9,
} aclrtMemAttr;

typedef enum aclrtRunMode {
  ACL_DEVICE = 0,
  ACL_HOST = 1,
} aclrtRunMode;

typedef enum aclrtStreamStatus {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
  ACL_STREAM_STATUS_RESERVED = 0xFFFF,
} aclrtStreamStatus;

typedef enum aclrtEventRecordedStatus {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1,
} aclrtEventRecordedStatus;

typedef enum aclSysParamOpt {
  ACL_OPT_DETERMINISTIC = 0,
  ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
  ACL_OPT_STRONG_CONSISTENCY = 2,
} aclSysParamOpt;

#define ACL_EVENT_SYNC 0x00000001U
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x00000002U
#define ACL_EVENT_TIME_LINE 0x00000008U
#define ACL_STREAM_FAST_LAUNCH 0x00000001U
#define ACL_STREAM_FAST_SYNC 0x00000002U

/// Accepts any device id: every id names this machine.
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);
/// Waits for every stream.
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);
/// Gets the id that this thread has set last, or 0 if the thread has set none.
ACL_FUNC_VISIBILITY aclError aclrtGetDevice(int32_t* deviceId);
/// Gets the number of devices, which is 1.
ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t* count);
/// Returns the name of the device, which is "CPU".
ACL_FUNC_VISIBILITY const char* aclrtGetSocName(void);
/// Always gets ACL_HOST, because the device is the host.
ACL_FUNC_VISIBILITY aclError aclrtGetRunMode(aclrtRunMode* runMode);
/// Waits for every stream. @return the first failure that no call has reported yet
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDevice(void);
/// @param timeout  milliseconds; -1 stands for no limit. @return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT when this time has
///                 passed
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);

/// A context has no effect: streams and memory do not belong to it. The thread that creates a context makes it current.
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);
ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext* context);
/// Records the option for the process. ACL_OPT_DETERMINISTIC has no effect, because results are always reproducible.
ACL_FUNC_VISIBILITY aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);
ACL_FUNC_VISIBILITY aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);

/// Creates a stream. A null stream stands for the default stream, in every function that takes one.
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream* stream);
ACL_FUNC_VISIBILITY aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag);
/// Runs the queued work, then destroys the stream. @return the first failure that no call has reported yet
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);
/// Waits for all work that is queued now on the stream. @return the first failure since the last call of this function;
/// 161002 if a tensor has wrong contents, such as lengths
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);
/// @param timeout  milliseconds; -1 stands for no limit. @return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT when this time has
///                 passed
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);
/// Gets whether all work that is queued now is done. A failure is still reported by the next synchronisation.
ACL_FUNC_VISIBILITY aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);

ACL_FUNC_VISIBILITY aclError aclrtCreateEvent(aclrtEvent* event);
ACL_FUNC_VISIBILITY aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);
ACL_FUNC_VISIBILITY aclError aclrtDestroyEvent(aclrtEvent event);
/// Records the event, which completes when the stream has done all work that is queued on it now.
ACL_FUNC_VISIBILITY aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
/// Does nothing. A wait after this call still waits for the event's last record.
ACL_FUNC_VISIBILITY aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);
/// Gets whether the event is complete. An event that was never recorded is complete.
ACL_FUNC_VISIBILITY aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status);
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEvent(aclrtEvent event);
/// Makes the stream wait for the last record of the event before it does work that is queued from now on.
ACL_FUNC_VISIBILITY aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
/// Gets the milliseconds between two completed events.
ACL_FUNC_VISIBILITY aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent);

/// Allocates zero-filled memory. The program may read and write at least max(2 MiB, 2 * size) bytes, rounded up to a
/// multiple of 2 MiB. Untouched pages take no memory. @return ACL_ERROR_BAD_ALLOC; then *devPtr is null
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
ACL_FUNC_VISIBILITY aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy);
/// Waits for every stream, since one of them may use the memory. @return ACL_ERROR_INVALID_PARAM for null and for
/// memory that aclrtMalloc did not allocate
ACL_FUNC_VISIBILITY aclError aclrtFree(void* devPtr);
ACL_FUNC_VISIBILITY aclError aclrtMallocHost(void** hostPtr, size_t size);
ACL_FUNC_VISIBILITY aclError aclrtFreeHost(void* hostPtr);
/// Copies at once, even if work on the memory is still queued on a stream.
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                                         aclrtMemcpyKind kind);
ACL_FUNC_VISIBILITY aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                                              aclrtMemcpyKind kind, aclrtStream stream);
/// Copies `height` rows of `width` bytes, which begin dpitch and spitch bytes apart.
ACL_FUNC_VISIBILITY aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                           size_t height, aclrtMemcpyKind kind);
/// Gets the bytes of memory that programs can still take, including the memory of caches, and the bytes that the
/// machine has. Both numbers are the same for every `attr`.
ACL_FUNC_VISIBILITY aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);
ACL_FUNC_VISIBILITY aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count);
ACL_FUNC_VISIBILITY aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                                              aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // FA_ACL_ACL_RT_H_
