// Tests of devices, contexts, memory and descriptors: the calls that a program makes around an operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "acl/acl.h"
#include "aclnn/opdev/fp16_t.h"
#include "reference/half.h"
#include "securec.h"
#include "support/execution/emulator.h"

namespace fa::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kGranule = size_t{2} << 20;

static_assert(ACL_FLOAT == 0 && ACL_FLOAT16 == 1 && ACL_INT8 == 2 && ACL_INT32 == 3 && ACL_UINT8 == 4);
static_assert(ACL_INT16 == 6 && ACL_UINT16 == 7 && ACL_UINT32 == 8 && ACL_INT64 == 9 && ACL_UINT64 == 10);
static_assert(ACL_DOUBLE == 11 && aclDataType::ACL_BOOL == 12 && ACL_BF16 == 27 && ACL_DT_UNDEFINED == -1);
static_assert(ACL_FORMAT_UNDEFINED == -1 && aclFormat::ACL_FORMAT_NCHW == 0 && ACL_FORMAT_ND == 2);
static_assert(ACL_MEMCPY_HOST_TO_HOST == 0 && ACL_MEMCPY_HOST_TO_DEVICE == 1 && ACL_MEMCPY_DEVICE_TO_HOST == 2);
static_assert(ACL_MEMCPY_DEVICE_TO_DEVICE == 3 && ACL_MEM_MALLOC_HUGE_FIRST == 0 && ACL_MEM_MALLOC_HUGE_ONLY == 1);
static_assert(ACL_MEM_MALLOC_HUGE_FIRST_P2P == 3 && ACL_FORMAT_NDHWC == 27 && ACL_FORMAT_NCL == 47);
static_assert(ACL_MEM_MALLOC_NORMAL_ONLY == 2 && ACL_SUCCESS == 0 && ACLNN_SUCCESS == 0);
static_assert(ACLNN_ERR_PARAM_NULLPTR == 161001 && ACLNN_ERR_PARAM_INVALID == 161002);
static_assert(ACLNN_ERR_RUNTIME_ERROR == 361001 && ACLNN_ERR_INNER_NULLPTR == 561103);
static_assert(ACL_ERROR_INVALID_PARAM == 100000 && ACL_ERROR_REPEAT_INITIALIZE == 100002);
static_assert(ACL_ERROR_BAD_ALLOC == 200000 && ACL_OPT_DETERMINISTIC == 0);
static_assert(std::is_same_v<aclError, int> && std::is_same_v<aclnnStatus, int32_t>);

TEST(Runtime, InitialisesOnceUntilFinalised) {
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit("acl.json"), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_ERROR_UNINITIALIZE);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(Runtime, EveryDeviceIsThisMachineAndBelongsToItsThread) {
  EXPECT_EQ(aclrtSetDevice(7), ACL_SUCCESS);
  int32_t device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(device, 7);
  std::thread([] {
    int32_t other = -1;
    EXPECT_EQ(aclrtGetDevice(&other), ACL_SUCCESS);
    EXPECT_EQ(other, 0);
  }).join();
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), ACL_SUCCESS);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(aclrtResetDevice(7), ACL_SUCCESS);
  EXPECT_EQ(aclrtGetDevice(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST(Runtime, ProgramsRunOnAHostWhoseDeviceIsACpu) {
  EXPECT_STREQ(aclrtGetSocName(), "CPU");
  aclrtRunMode mode = ACL_DEVICE;
  EXPECT_EQ(aclrtGetRunMode(&mode), ACL_SUCCESS);
  EXPECT_EQ(mode, ACL_HOST);
  EXPECT_EQ(aclrtGetRunMode(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST(Runtime, ContextsAreCurrentInTheThreadThatSetThem) {
  aclrtContext first = nullptr, second = nullptr, current = nullptr;
  ASSERT_EQ(aclrtCreateContext(&first, 3), ACL_SUCCESS);
  ASSERT_EQ(aclrtCreateContext(&second, 4), ACL_SUCCESS);
  EXPECT_EQ(aclrtGetCurrentContext(&current), ACL_SUCCESS);
  EXPECT_EQ(current, second);
  EXPECT_EQ(aclrtSetCurrentContext(first), ACL_SUCCESS);
  int32_t device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(device, 3);
  EXPECT_EQ(aclrtDestroyContext(first), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyContext(first), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtSetCurrentContext(first), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtDestroyContext(second), ACL_SUCCESS);
}

/// Makes a call that fails and a call that succeeds. Returns what both calls print to standard output.
std::string PrintedByTwoCalls() {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(aclFinalize(), ACL_ERROR_UNINITIALIZE);
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Runtime, PrintsErrorsAsTheDevicesLogDoesWhereItsVariableAsksForThem) {
  const char print[] = "ASCEND_SLOG_PRINT_TO_STDOUT", level[] = "ASCEND_GLOBAL_LOG_LEVEL";
  unsetenv(print);
  unsetenv(level);
  EXPECT_EQ(PrintedByTwoCalls(), "");
  setenv(print, "0", 1);
  EXPECT_EQ(PrintedByTwoCalls(), "");
  setenv(print, "1", 1);
  const auto is_one_line = ::testing::MatchesRegex(
      "\\[ERROR\\] FA\\([0-9]+,[^)]+\\):[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}\\.[0-9]{3} "
      "100001: aclFinalize: no aclInit before\n");
  EXPECT_THAT(PrintedByTwoCalls(), is_one_line);
  for (const char* lower : {"0", "1", "2", "3", "unknown"}) {
    setenv(level, lower, 1);
    EXPECT_THAT(PrintedByTwoCalls(), is_one_line) << lower;
  }
  setenv(level, "4", 1);
  EXPECT_EQ(PrintedByTwoCalls(), "");
  unsetenv(print);
  unsetenv(level);
}

TEST(Runtime, KeepsTheDeterministicSwitch) {
  int64_t value = -1;
  EXPECT_EQ(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), ACL_SUCCESS);
  EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), ACL_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 0), ACL_SUCCESS);
  EXPECT_EQ(aclrtCtxSetSysParamOpt(static_cast<aclSysParamOpt>(3), 1), ACL_ERROR_INVALID_PARAM);
}

TEST(Memory, IsZeroAndTwiceWhatWasAskedFor) {
  for (const size_t size : {size_t{0}, size_t{1}, kGranule / 2 + 1, 3 * kGranule}) {
    void* memory = nullptr;
    ASSERT_EQ(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    std::vector<unsigned char> host(std::max(2 * size, kGranule), 1);
    EXPECT_EQ(aclrtMemcpy(host.data(), host.size(), memory, host.size(), ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
    EXPECT_EQ(std::count(host.begin(), host.end(), 0), static_cast<ptrdiff_t>(host.size()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
    EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  }
}

// 4 TiB are more than machines have. Under qemu-user the size is 64 GiB, because qemu-user needs memory for every page
// (support/cases/sparse_memory.cc).
TEST(Memory, UntouchedPagesCostNothing) {
  void* memory = nullptr;
  const size_t bytes = size_t{1} << (Emulated() ? 36 : 42);
  ASSERT_EQ(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

TEST(Memory, TooMuchIsBadAllocAndLeavesNull) {
  void* memory = &memory;
  EXPECT_EQ(aclrtMalloc(&memory, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_BAD_ALLOC);
  EXPECT_EQ(memory, nullptr);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("out of memory"));
  EXPECT_EQ(aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
}

TEST(Memory, FreeingNullTwiceOrSomethingElseIsACode) {
  EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtFreeHost(nullptr), ACL_ERROR_INVALID_PARAM);
  int local = 0;
  EXPECT_EQ(aclrtFree(&local), ACL_ERROR_INVALID_PARAM);
  void* memory = nullptr;
  ASSERT_EQ(aclrtMallocHost(&memory, 100), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeHost(memory), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeHost(memory), ACL_ERROR_INVALID_PARAM);
}

TEST(Memory, CopiesAndFillsStayInside) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 16, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  std::vector<char> host(3 * kGranule, 'x');
  EXPECT_EQ(aclrtMemcpy(memory, 16, host.data(), 17, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(memory, host.size(), host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE),
            ACL_ERROR_INVALID_PARAM)
      << "past the mapping";
  EXPECT_EQ(aclrtMemcpy(host.data(), host.size(), memory, host.size(), ACL_MEMCPY_DEVICE_TO_HOST),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(memory, 16, host.data(), 16, static_cast<aclrtMemcpyKind>(5)), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(nullptr, 16, host.data(), 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(memory, 16, nullptr, 16, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(nullptr, 0, nullptr, 0, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemset(memory, 16, 5, 17), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemset(memory, 16, 5, 16), ACL_SUCCESS);
  std::vector<char> back(17, 'x');
  EXPECT_EQ(aclrtMemcpy(back.data(), back.size(), memory, 17, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  EXPECT_THAT(std::vector<char>(back.begin(), back.end() - 1), Each(5));
  EXPECT_EQ(back.back(), 0);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

TEST(Memory, CopiesOfRowsStayInside) {
  void* memory = nullptr;
  ASSERT_EQ(aclrtMallocAlign32(&memory, 16, ACL_MEM_MALLOC_HUGE_FIRST_P2P), ACL_SUCCESS);
  const std::string rows = "ab.cd.ef";
  const auto upload = [&](size_t dpitch, size_t spitch, size_t width, size_t height) {
    return aclrtMemcpy2d(memory, dpitch, rows.data(), spitch, width, height, ACL_MEMCPY_HOST_TO_DEVICE);
  };
  EXPECT_EQ(upload(4, 3, 2, 3), ACL_SUCCESS);
  const auto* copied = static_cast<const char*>(memory);
  EXPECT_EQ(std::string(copied, 10), std::string("ab\0\0cd\0\0ef", 10));
  EXPECT_EQ(upload(1, 3, 2, 3), ACL_ERROR_INVALID_PARAM);
  EXPECT_STREQ(aclGetRecentErrMsg(), "width=2, want <= 1 (dpitch)");
  EXPECT_EQ(upload(4, 1, 2, 3), ACL_ERROR_INVALID_PARAM);
  EXPECT_STREQ(aclGetRecentErrMsg(), "width=2, want <= 1 (spitch)");
  EXPECT_EQ(upload(kGranule, 3, 2, 3), ACL_ERROR_INVALID_PARAM) << "past the mapping";
  EXPECT_STREQ(aclGetRecentErrMsg(), "dst has 2097152 bytes, want 4194306");
  EXPECT_EQ(upload(SIZE_MAX, 3, 2, 3), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(std::string(copied, 10), std::string("ab\0\0cd\0\0ef", 10)) << "nothing was written";
  EXPECT_EQ(upload(4, 3, 0, 3), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpy2d(memory, 4, nullptr, 3, 2, 3, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

TEST(Memory, TheMachineTellsItsMemory) {
  size_t free = 0, total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_SUCCESS);
  EXPECT_GT(free, 0U);
  EXPECT_GT(total, free);
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &total), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST(Memory, AsynchronousCopiesRunInOrder) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
  const std::string first = "first..", second = "second.";
  std::string back = "???????";
  EXPECT_EQ(aclrtMemcpyAsync(memory, 7, first.data(), 7, ACL_MEMCPY_HOST_TO_DEVICE, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpyAsync(memory, 7, second.data(), 7, ACL_MEMCPY_HOST_TO_DEVICE, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemsetAsync(memory, 8, '!', 1, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpyAsync(back.data(), 7, memory, 7, ACL_MEMCPY_DEVICE_TO_HOST, stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpyAsync(back.data(), 7, memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(back, "!econd.");
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
}

TEST(Descriptors, AreDestroyedOnceAndNullIsACode) {
  const int64_t shape[] = {2, 3};
  float data[6] = {};
  aclTensor* tensor = aclCreateTensor(shape, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 2, data);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyTensor(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  aclIntArray* array = aclCreateIntArray(shape, 2);
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(aclDestroyIntArray(array), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyIntArray(array), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyIntArray(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  aclScalar* scalar = aclCreateScalar(data, ACL_FLOAT);
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(aclDestroyScalar(scalar), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyScalar(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyTensorList(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

TEST(Descriptors, OfNothingAreNull) {
  EXPECT_EQ(aclCreateTensor(nullptr, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr), nullptr);
  EXPECT_EQ(aclCreateIntArray(nullptr, 2), nullptr);
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
  EXPECT_EQ(aclCreateTensorList(nullptr, 2), nullptr);
}

TEST(Descriptors, ListsOwnTheirTensors) {
  const int64_t shape[] = {2};
  const aclTensor* tensors[] = {aclCreateTensor(shape, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 1, nullptr),
                                aclCreateTensor(shape, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 1, nullptr)};
  aclTensorList* list = aclCreateTensorList(tensors, 2);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(aclDestroyTensorList(list), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyTensor(tensors[0]), ACLNN_ERR_PARAM_INVALID) << "gone with the list";
  EXPECT_EQ(aclCreateTensorList(tensors, 2), nullptr);
}

TEST(Descriptors, AreDestroyedByOneOfTwoThreads) {
  const int64_t shape[] = {2, 3};
  for (int i = 0; i < 500; ++i) {
    aclTensor* tensor = aclCreateTensor(shape, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 2, nullptr);
    aclTensorList* list = aclCreateTensorList(&tensor, 1);
    aclnnStatus first = -1, second = -1;
    std::thread other([&] { second = aclDestroyTensorList(list); });
    first = aclDestroyTensorList(list);
    other.join();
    EXPECT_EQ(std::min(first, second), ACLNN_SUCCESS);
    EXPECT_EQ(std::max(first, second), ACLNN_ERR_PARAM_INVALID);
  }
}

TEST(Descriptors, TellTheirShapeTypeAndSize) {
  const int64_t shape[] = {2, 3};
  const aclTensor* tensor = aclCreateTensor(shape, 2, ACL_BF16, nullptr, 0, ACL_FORMAT_ND, shape, 2, nullptr);
  int64_t* dims = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(aclGetViewShape(tensor, &dims, &count), ACLNN_SUCCESS);
  EXPECT_EQ(std::vector<int64_t>(dims, dims + count), std::vector<int64_t>({2, 3}));
  delete[] dims;
  aclDataType dtype = ACL_DT_UNDEFINED;
  EXPECT_EQ(aclGetDataType(tensor, &dtype), ACLNN_SUCCESS);
  EXPECT_EQ(dtype, ACL_BF16);
  EXPECT_EQ(aclGetDataType(tensor, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetViewShape(nullptr, &dims, &count), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  EXPECT_EQ(aclGetDataType(tensor, &dtype), ACLNN_ERR_PARAM_INVALID);
  const aclIntArray* array = aclCreateIntArray(shape, 2);
  EXPECT_EQ(aclGetIntArraySize(array, &count), ACLNN_SUCCESS);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(aclDestroyIntArray(array), ACLNN_SUCCESS);
}

TEST(Descriptors, ArraysOfOtherTypes) {
  const float numbers[] = {0.5F};
  const aclFloatArray* floats = aclCreateFloatArray(numbers, 1);
  ASSERT_NE(floats, nullptr);
  EXPECT_EQ(aclDestroyFloatArray(floats), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyFloatArray(floats), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclCreateFloatArray(nullptr, 1), nullptr);
  const bool flags[] = {true, false};
  const aclBoolArray* bools = aclCreateBoolArray(flags, 2);
  ASSERT_NE(bools, nullptr);
  EXPECT_EQ(aclDestroyBoolArray(bools), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyBoolArray(bools), ACLNN_ERR_PARAM_INVALID);
}

using reference::Format;

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    const auto half = static_cast<aclFloat16>(bits);
    const float value = aclFloat16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(reference::Decode16(Format::kF16, half))) << bits;
      EXPECT_TRUE(std::isnan(aclFloat16ToFloat(aclFloatToFloat16(value)))) << bits;
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), reference::Decode16(Format::kF16, half)) << bits;
    EXPECT_EQ(aclFloatToFloat16(value), half);
  }
}

TEST(Half, RoundsToNearestEven) {
  const auto check = [](float value) {
    EXPECT_EQ(aclFloatToFloat16(value), reference::Encode16(Format::kF16, static_cast<double>(value))) << value;
  };
  for (uint16_t bits = 0; bits < 0x7C00; ++bits) {  // every tie between two f16 numbers, and the tie's neighbours
    const double above = bits == 0x7BFF ? 65536 : reference::Decode16(Format::kF16, static_cast<uint16_t>(bits + 1));
    const auto tie = static_cast<float>((reference::Decode16(Format::kF16, bits) + above) / 2);
    for (const float value : {std::nextafterf(tie, 0), tie, std::nextafterf(tie, 1e9F)}) {
      check(value);
      check(-value);
    }
  }
  for (const float value : {1e-45F, 1e-30F, 1e30F, INFINITY, -INFINITY}) check(value);
  std::fesetround(FE_UPWARD);
  const aclFloat16 below_the_first_tie = aclFloatToFloat16(1e-8F);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(below_the_first_tie, 0) << "the program's rounding mode has no effect";
}

TEST(Half, NumbersOfCppProgramsComputeAsFloats) {
  const std::vector<op::fp16_t> ones(3, 1);
  EXPECT_EQ(ones[2].val, 0x3C00);
  op::fp16_t x = 0.5F;
  x = x + ones[0] * 2.0;
  EXPECT_EQ(static_cast<float>(x), 2.5F);
  EXPECT_EQ(x.toFloat(), 2.5F);
  EXPECT_LT(ones[0], x);
  op::fp16_t y = 3;
  y += 1.0F;
  y += y;
  y -= 2.0F;
  y *= 3.0F;
  y /= 4.0F;
  EXPECT_EQ(y.toFloat(), 4.5F);
  EXPECT_EQ(op::fp16_t(uint16_t{0x3C00}), ones[0]) << "bits";
  static_assert(sizeof(op::fp16_t) == 2);
}

TEST(SecureCopies, RefuseWhatDoesNotFit) {
  char text[5] = "....";
  EXPECT_EQ(strcpy_s(text, sizeof text, "BNSD"), EOK);
  EXPECT_STREQ(text, "BNSD");
  EXPECT_EQ(strcpy_s(text, 4, "BSND"), ERANGE);
  EXPECT_EQ(memcpy_s(text, 2, "BSND", 3), ERANGE);
  EXPECT_EQ(memset_s(text, 2, 0, 3), ERANGE);
  EXPECT_STREQ(text, "BNSD");
  EXPECT_EQ(memcpy_s(text, 5, nullptr, 1), EINVAL);
  EXPECT_EQ(strcpy_s(nullptr, 5, "TND"), EINVAL);
  const errno_t copied = memcpy_s(text, sizeof text, "TND", sizeof "TND");
  EXPECT_EQ(copied, EOK);
  EXPECT_STREQ(text, "TND");
  EXPECT_EQ(memset_s(text, sizeof text, '!', 2), EOK);
  EXPECT_STREQ(text, "!!D");
}

TEST(Descriptors, SizesOfTypes) {
  EXPECT_EQ(aclDataTypeSize(ACL_BOOL), 1U);
  EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2U);
  EXPECT_EQ(aclDataTypeSize(ACL_FLOAT), 4U);
  EXPECT_EQ(aclDataTypeSize(ACL_INT64), 8U);
  EXPECT_EQ(aclDataTypeSize(ACL_DT_UNDEFINED), 0U);
}

}  // namespace
}  // namespace fa::test
