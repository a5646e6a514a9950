#include <atomic>
#include <memory>
#include <string>

#include "acl/acl.h"
#include "aclnn/runtime/handle_table.h"
#include "aclnn/runtime/report.h"
#include "aclnn/runtime/stream.h"
#include "fa/half.h"

namespace fa::aclnn {
namespace {

struct RuntimeContext {
  int32_t device = 0;
};

std::atomic<bool> initialized = false;
std::atomic<int64_t> options[ACL_OPT_STRONG_CONSISTENCY + 1];
thread_local int32_t current_device = 0;
thread_local aclrtContext current_context = nullptr;

constinit HandleTable<RuntimeContext> contexts;

aclError Invalid(const std::string& message) { return Report({ACL_ERROR_INVALID_PARAM, message}); }

aclError WaitForStreams() {
  return Guarded([]() -> aclError {
    WaitForAllStreams();
    return ACL_SUCCESS;
  });
}

aclError CheckOption(aclSysParamOpt opt) {
  if (opt >= ACL_OPT_DETERMINISTIC && opt <= ACL_OPT_STRONG_CONSISTENCY) return ACL_SUCCESS;
  return Invalid("opt=" + std::to_string(static_cast<int>(opt)) + ", want 0..2");
}

}  // namespace
}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclError aclInit(const char* /*configPath*/) {
  if (!initialized.exchange(true)) return ACL_SUCCESS;
  return Guarded([] { return Report({ACL_ERROR_REPEAT_INITIALIZE, "aclInit: called before"}); });
}

aclError aclFinalize() {
  if (const aclError error = WaitForStreams(); error != ACL_SUCCESS) return error;
  if (initialized.exchange(false)) return ACL_SUCCESS;
  return Guarded([] { return Report({ACL_ERROR_UNINITIALIZE, "aclFinalize: no aclInit before"}); });
}

aclError aclrtSetDevice(int32_t deviceId) {
  current_device = deviceId;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t /*deviceId*/) { return WaitForStreams(); }

aclError aclrtGetDevice(int32_t* deviceId) {
  return Guarded([&]() -> aclError {
    if (deviceId == nullptr) return Invalid("deviceId: null");
    *deviceId = current_device;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return Guarded([&]() -> aclError {
    if (count == nullptr) return Invalid("count: null");
    *count = 1;
    return ACL_SUCCESS;
  });
}

const char* aclrtGetSocName() { return "CPU"; }

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return Guarded([&]() -> aclError {
    if (runMode == nullptr) return Invalid("runMode: null");
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
  });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return Guarded([&]() -> aclError {
    if (context == nullptr) return Invalid("context: null");
    *context = contexts.Insert(std::make_shared<RuntimeContext>(RuntimeContext{deviceId}));
    return aclrtSetCurrentContext(*context);
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return Guarded([&]() -> aclError {
    if (contexts.Remove(context) == nullptr) return Invalid("context: not created, or destroyed");
    if (current_context == context) current_context = nullptr;
    return ACL_SUCCESS;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return Guarded([&]() -> aclError {
    const auto found = contexts.Find(context);
    if (found == nullptr) return Invalid("context: not created, or destroyed");
    current_context = context;
    current_device = found->device;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return Guarded([&]() -> aclError {
    if (context == nullptr) return Invalid("context: null");
    *context = current_context;
    return ACL_SUCCESS;
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return Guarded([&]() -> aclError {
    if (const aclError error = CheckOption(opt); error != ACL_SUCCESS) return error;
    options[opt] = value;
    return ACL_SUCCESS;
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return Guarded([&]() -> aclError {
    if (const aclError error = CheckOption(opt); error != ACL_SUCCESS) return error;
    if (value == nullptr) return Invalid("value: null");
    *value = options[opt];
    return ACL_SUCCESS;
  });
}

float aclFloat16ToFloat(aclFloat16 value) { return fa::F32FromF16(value); }

aclFloat16 aclFloatToFloat16(float value) { return fa::F16FromF32(value); }

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0: return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16: return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32: return 4;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
    case ACL_COMPLEX64: return 8;
    case ACL_COMPLEX128: return 16;
    case ACL_INT4:
    case ACL_FLOAT4_E2M1:
    case ACL_FLOAT4_E1M2:
    case ACL_STRING:
    case ACL_DT_UNDEFINED: break;
  }
  return 0;
}
