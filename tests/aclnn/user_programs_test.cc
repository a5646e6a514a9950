// Tests programs with mistakes that the device tolerates: buffers of the wrong size or type, null pointers, leaks, and
// objects destroyed in any order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "aclnn/calls/face_call.h"
#include "aclnn/opdev/fp16_t.h"
#include "aclnnop/aclnn_flash_attention_score.h"
#include "securec.h"

namespace fa::test {
namespace {

constexpr int64_t kRows = 4, kSize = 16;
constexpr size_t kElements = kRows * kSize, kStatistics = kRows * 8;
constexpr uint16_t kHalfOne = 0x3C00;

/// A call with one head of f16 in device memory, as published programs make it. The programs compute strides by
/// hand, and give the storage the shape of the view.
class Program {
 public:
  template <typename T>
  aclTensor* Upload(const std::vector<T>& host, const std::vector<int64_t>& shape, aclDataType dtype) {
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, host.size() * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    EXPECT_EQ(
        aclrtMemcpy(memory, host.size() * sizeof(T), host.data(), host.size() * sizeof(T), ACL_MEMCPY_HOST_TO_DEVICE),
        ACL_SUCCESS);
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = shape[i] * strides[i];
    memory_.push_back(memory);
    tensors_.push_back(aclCreateTensor(shape.data(), shape.size(), dtype, strides.data(), 0, aclFormat::ACL_FORMAT_ND,
                                       shape.data(), shape.size(), memory));
    return tensors_.back();
  }

  void CreateTensors() {
    const std::vector<int64_t> shape = {1, 1, kRows, kSize};
    const std::vector<uint16_t> ones(kElements, kHalfOne);
    query = Upload(ones, shape, ACL_FLOAT16);
    key = Upload(ones, shape, ACL_FLOAT16);
    value = Upload(ones, shape, ACL_FLOAT16);
    max = Upload(std::vector<float>(kStatistics), {1, 1, kRows, 8}, ACL_FLOAT);
    sum = Upload(std::vector<float>(kStatistics), {1, 1, kRows, 8}, ACL_FLOAT);
    out = Upload(std::vector<uint16_t>(kElements), shape, ACL_FLOAT16);
  }

  aclnnStatus Plan() {
    char layout[] = "BNSD";
    return aclnnFlashAttentionScoreGetWorkspaceSize(query, key, value, nullptr, nullptr, nullptr, nullptr, prefix, 0.25,
                                                    1.0, 65536, 65536, 1, layout, 0, 0, max, sum, softmax_out, out,
                                                    &workspace_size, &executor);
  }
  aclnnStatus Run(aclrtStream stream) {
    EXPECT_EQ(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    return aclnnFlashAttentionScore(workspace, workspace_size, executor, stream);
  }
  [[nodiscard]] void* out_memory() const { return memory_.back(); }
  void DestroyTensors() {
    for (const aclTensor* tensor : tensors_) EXPECT_EQ(aclDestroyTensor(tensor), ACLNN_SUCCESS);
  }
  void FreeMemory() {
    for (void* memory : memory_) EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(workspace), ACL_SUCCESS);
  }

  const aclTensor *query = nullptr, *key = nullptr, *value = nullptr, *max = nullptr, *sum = nullptr, *out = nullptr;
  const aclTensor* softmax_out = nullptr;
  const aclIntArray* prefix = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;

 private:
  std::vector<void*> memory_;
  std::vector<aclTensor*> tensors_;
};

class UserPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(aclFinalize(), ACL_SUCCESS); }

  /// Expects 1 in every element of the output.
  static void ExpectOnes(const Program& program) {
    std::vector<uint16_t> result(kElements);
    EXPECT_EQ(aclrtMemcpy(result.data(), kElements * 2, program.out_memory(), kElements * 2, ACL_MEMCPY_DEVICE_TO_HOST),
              ACL_SUCCESS);
    EXPECT_EQ(result, std::vector<uint16_t>(kElements, kHalfOne));
  }

  aclrtStream stream_ = nullptr;
};

TEST_F(UserPrograms, ReadBackTwiceTheBytesOfATensor) {
  Program program;
  program.CreateTensors();
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  std::vector<float> result(kElements, NAN);  // the program reads f16 outputs as if they were f32
  ASSERT_EQ(aclrtMemcpy(result.data(), result.size() * sizeof(float), program.out_memory(),
                        result.size() * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST),
            ACL_SUCCESS);
  uint16_t first = 0;
  std::memcpy(&first, result.data(), sizeof(first));
  EXPECT_EQ(first, kHalfOne);
  EXPECT_EQ(result.back(), 0) << "what lies past the tensor is zero";
  program.DestroyTensors();
  program.FreeMemory();
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, UploadFloatBuffersForHalfTensors) {
  Program program;
  const std::vector<int64_t> shape = {1, 1, kRows, kSize};
  const std::vector<float> floats(kElements, 1.0F);  // read as f16, half of the values are 0 and half are 1.875
  program.query = program.Upload(floats, shape, ACL_FLOAT16);
  program.key = program.Upload(floats, shape, ACL_FLOAT16);
  program.value = program.Upload(floats, shape, ACL_FLOAT16);
  program.max = program.Upload(std::vector<float>(kStatistics), {1, 1, kRows, 8}, ACL_FLOAT);
  program.sum = program.Upload(std::vector<float>(kStatistics), {1, 1, kRows, 8}, ACL_FLOAT);
  program.out = program.Upload(floats, shape, ACL_FLOAT16);
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  std::vector<uint16_t> result(kElements);
  ASSERT_EQ(aclrtMemcpy(result.data(), kElements * 2, program.out_memory(), kElements * 2, ACL_MEMCPY_DEVICE_TO_HOST),
            ACL_SUCCESS);
  for (size_t i = 0; i < kElements; ++i) EXPECT_EQ(result[i], i % 2 == 0 ? 0x0000 : 0x3F80);
  program.DestroyTensors();
  program.FreeMemory();
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, UseTheHelpersOfPublishedPrograms) {
  Program program;
  program.CreateTensors();
  const std::vector<op::fp16_t> twos(kElements, 2);
  program.value = program.Upload(twos, {1, 1, kRows, kSize}, ACL_FLOAT16);
  program.out =
      program.Upload(std::vector<aclFloat16>(kElements, aclFloatToFloat16(0)), {1, 1, kRows, kSize}, ACL_FLOAT16);
  char layout[5];
  const errno_t copied = memcpy_s(layout, sizeof layout, "BNSD", 5);
  ASSERT_EQ(copied, 0);
  ASSERT_EQ(aclnnFlashAttentionScoreGetWorkspaceSize(program.query, program.key, program.value, nullptr, nullptr,
                                                     nullptr, nullptr, nullptr, 0.25, 1.0, 65536, 65536, 1, layout, 0,
                                                     0, program.max, program.sum, nullptr, program.out,
                                                     &program.workspace_size, &program.executor),
            ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  std::vector<op::fp16_t> result(kElements, 0);
  ASSERT_EQ(aclrtMemcpy(result.data(), kElements * sizeof(result[0]), program.out_memory(), kElements * 2,
                        ACL_MEMCPY_DEVICE_TO_HOST),
            ACL_SUCCESS);
  for (const op::fp16_t x : result) EXPECT_EQ(static_cast<float>(x), 2.0F);
  EXPECT_EQ(aclFloat16ToFloat(result.back().val), 2.0F);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, PassUnusedArraysAndEmptyTensors) {
  Program program;
  program.CreateTensors();
  const int64_t zero = 0;
  program.prefix = aclCreateIntArray(&zero, 1);
  const int64_t empty[] = {0};
  program.softmax_out = aclCreateTensor(empty, 1, ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, empty, 1, nullptr);
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ExpectOnes(program);
  EXPECT_EQ(aclDestroyIntArray(program.prefix), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyTensor(program.softmax_out), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, FreeNullPointersAndDestroyNullObjects) {
  aclrtFree(nullptr);
  aclrtFreeHost(nullptr);
  aclDestroyTensor(nullptr);
  aclDestroyIntArray(nullptr);
  aclDestroyTensorList(nullptr);
  aclDestroyScalar(nullptr);
  aclDestroyAclOpExecutor(nullptr);
  aclrtDestroyEvent(nullptr);
  aclrtDestroyContext(nullptr);
  EXPECT_EQ(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM) << "the default stream stays";
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, DestroyEverythingBeforeTheWorkIsDone) {
  Program program;
  program.CreateTensors();
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  program.DestroyTensors();
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  program.FreeMemory();  // FreeMemory waits for the stream
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
}

TEST_F(UserPrograms, DestroyTheDeviceBeforeTheStreamAndTheTensors) {
  Program program;
  program.CreateTensors();
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
  ExpectOnes(program);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  program.FreeMemory();
  program.DestroyTensors();
}

TEST_F(UserPrograms, LeakExecutorsBuffersAndStreams) {
  Program program;
  program.CreateTensors();
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);  // this executor never runs
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ExpectOnes(program);
}

TEST_F(UserPrograms, AllocateAWorkspaceOfNothing) {
  Program program;
  const std::vector<int64_t> shape = {0, 1, kRows, kSize};
  for (const aclTensor** tensor : {&program.query, &program.key, &program.value, &program.out}) {
    *tensor = program.Upload(std::vector<uint16_t>{}, shape, ACL_FLOAT16);
  }
  program.max = program.Upload(std::vector<float>{}, {0, 1, kRows, 8}, ACL_FLOAT);
  program.sum = program.Upload(std::vector<float>{}, {0, 1, kRows, 8}, ACL_FLOAT);
  ASSERT_EQ(program.Plan(), ACLNN_SUCCESS);
  ASSERT_EQ(program.Run(stream_), ACLNN_SUCCESS) << "aclrtMalloc of 0 bytes gives memory";
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

TEST_F(UserPrograms, PassNoLayoutAtAll) {
  Program program;
  program.CreateTensors();
  EXPECT_EQ(aclnnFlashAttentionScoreGetWorkspaceSize(program.query, program.key, program.value, nullptr, nullptr,
                                                     nullptr, nullptr, nullptr, 0.25, 1.0, 65536, 65536, 1, nullptr, 0,
                                                     0, program.max, program.sum, nullptr, program.out,
                                                     &program.workspace_size, &program.executor),
            ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_STREQ(aclGetRecentErrMsg(), "inputLayout: null");
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
}

}  // namespace
}  // namespace fa::test
