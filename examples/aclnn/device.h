#ifndef FA_EXAMPLES_ACLNN_DEVICE_H_
#define FA_EXAMPLES_ACLNN_DEVICE_H_

// The steps that every program for the device needs: start, tensors in device memory, results on the host, end.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "acl/acl.h"

#define CHECK(call)                                                                 \
  do {                                                                              \
    const int check_code = (call);                                                  \
    if (check_code != 0) {                                                          \
      std::printf("%s returned %d: %s\n", #call, check_code, aclGetRecentErrMsg()); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

inline void StartDevice(int32_t device, aclrtStream* stream) {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(device));
  CHECK(aclrtCreateStream(stream));
}

inline void StopDevice(int32_t device, aclrtStream stream) {
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(device));
  CHECK(aclFinalize());
}

inline int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

// A tensor in device memory, and its values on the host.
struct DeviceTensor {
  void* memory = nullptr;
  size_t bytes = 0;
  aclTensor* tensor = nullptr;
};

template <typename T>
DeviceTensor CreateTensor(const std::vector<T>& host, const std::vector<int64_t>& shape, aclDataType type) {
  DeviceTensor created;
  created.bytes = static_cast<size_t>(ElementsOf(shape)) * sizeof(T);
  CHECK(aclrtMalloc(&created.memory, created.bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMemcpy(created.memory, created.bytes, host.data(), created.bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = shape[i] * strides[i];
  created.tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, aclFormat::ACL_FORMAT_ND,
                                   shape.data(), shape.size(), created.memory);
  return created;
}

template <typename T>
DeviceTensor CreateOutput(const std::vector<int64_t>& shape, aclDataType type) {
  return CreateTensor(std::vector<T>(static_cast<size_t>(ElementsOf(shape))), shape, type);
}

inline void Destroy(DeviceTensor& tensor) {
  CHECK(aclDestroyTensor(tensor.tensor));
  CHECK(aclrtFree(tensor.memory));
}

template <typename T>
std::vector<T> ToHost(const DeviceTensor& tensor) {
  std::vector<T> host(tensor.bytes / sizeof(T));
  CHECK(aclrtMemcpy(host.data(), tensor.bytes, tensor.memory, tensor.bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  return host;
}

// Makes the workspace, runs the second phase and waits.
using Operator = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

inline void Execute(Operator run, uint64_t workspace_size, aclOpExecutor* executor, aclrtStream stream) {
  void* workspace = nullptr;
  if (workspace_size > 0) CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(run(workspace, workspace_size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  if (workspace != nullptr) CHECK(aclrtFree(workspace));
}

// Numbers that are easy to compute in another program: sin(frequency * index).
inline std::vector<float> Wave(int64_t elements, double frequency) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i)));
  }
  return values;
}

// A bfloat16 is the upper half of a float.
inline std::vector<uint16_t> ToBf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    uint32_t word = 0;
    std::memcpy(&word, &values[i], sizeof(word));
    bits[i] = static_cast<uint16_t>(word >> 16);
  }
  return bits;
}

inline std::vector<float> FromBf16(const std::vector<uint16_t>& bits) {
  std::vector<float> values(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    const uint32_t word = static_cast<uint32_t>(bits[i]) << 16;
    std::memcpy(&values[i], &word, sizeof(word));
  }
  return values;
}

// The mask that sparse modes 2, 3, 4, 7 and 8 take: 2048 x 2048 elements, 1 above the diagonal.
inline std::vector<uint8_t> CompressedMask() {
  constexpr size_t kSide = 2048;
  std::vector<uint8_t> mask(kSide * kSide, 0);
  for (size_t i = 0; i < kSide; ++i) {
    for (size_t j = i + 1; j < kSide; ++j) mask[i * kSide + j] = 1;
  }
  return mask;
}

inline void Print(const char* name, const std::vector<float>& values, size_t columns) {
  std::printf("%s\n", name);
  for (size_t i = 0; i < values.size(); ++i) {
    // Prints four digits, and no minus before a zero.
    std::printf("%8.4f%c", std::fabs(values[i]) < 5e-5F ? 0.0 : static_cast<double>(values[i]),
                (i + 1) % columns == 0 ? '\n' : ' ');
  }
}

// Statistics are stored in eight equal copies. Returns one copy.
inline std::vector<float> FirstOfEight(const std::vector<float>& statistics) {
  std::vector<float> values;
  for (size_t i = 0; i < statistics.size(); i += 8) values.push_back(statistics[i]);
  return values;
}

#endif  // FA_EXAMPLES_ACLNN_DEVICE_H_
