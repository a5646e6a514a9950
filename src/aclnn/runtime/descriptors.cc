#include "aclnn/runtime/descriptors.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "aclnn/runtime/handle_table.h"
#include "aclnn/runtime/report.h"

struct aclScalar {
  aclDataType dtype = ACL_DT_UNDEFINED;
  unsigned char value[16] = {};  // large enough for the widest type, complex128
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<bool> values;
};

struct aclTensorList {
  std::vector<std::shared_ptr<aclTensor>> tensors;
};

namespace fa::aclnn {
namespace {

template <typename T>
constinit HandleTable<T> table;

aclnnStatus NotAlive(const char* name) {
  return Report({ACLNN_ERR_PARAM_INVALID, std::string(name) + ": not created, or destroyed"});
}

template <typename T>
aclnnStatus Destroy(const char* name, const T* handle) {
  return Guarded([&]() -> aclnnStatus {
    if (const aclnnStatus error = CheckNotNull({{name, handle}}); error != ACLNN_SUCCESS) return error;
    return table<T>.Remove(handle) != nullptr ? ACLNN_SUCCESS : NotAlive(name);
  });
}

// Calls get(object) with the object to which the handle points.
// @param results  the addresses that `get` writes, which must not be null
template <typename T, typename Get>
aclnnStatus GetOf(const char* name, const T* handle, std::initializer_list<NamedPointer> results, const Get& get) {
  return Guarded([&]() -> aclnnStatus {
    if (const aclnnStatus error = CheckNotNull({{name, handle}}); error != ACLNN_SUCCESS) return error;
    if (const aclnnStatus error = CheckNotNull(results); error != ACLNN_SUCCESS) return error;
    const auto found = table<T>.Find(handle);
    if (found == nullptr) return NotAlive(name);
    get(*found);
    return ACLNN_SUCCESS;
  });
}

// Returns what `make` returns, or null if there is no memory.
template <typename Make>
auto Created(const Make& make) noexcept -> decltype(make()) {
  try {
    return make();
  } catch (...) {
    static_cast<void>(Report(FailureOfException(ACL_ERROR_BAD_ALLOC)));
    return nullptr;
  }
}

std::nullptr_t Refused(const char* message) {
  static_cast<void>(Report({ACLNN_ERR_PARAM_INVALID, message}));
  return nullptr;
}

// Returns the number of elements of a shape, or 0 if a size is negative or the number does not fit into 63 bits.
int64_t ElementsOf(std::span<const int64_t> shape) {
  int64_t elements = shape.empty() ? 0 : 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return 0;
  }
  return elements;
}

template <typename Array, typename Value>
Array* CreateArray(const Value* value, uint64_t size) {
  return Created([&]() -> Array* {
    if (value == nullptr && size > 0) return Refused("value: null");
    auto array = std::make_shared<Array>();
    if (size > 0) array->values.assign(value, value + size);
    return table<Array>.Insert(std::move(array));
  });
}

}  // namespace

std::shared_ptr<aclTensor> FindTensor(const aclTensor* tensor) { return table<aclTensor>.Find(tensor); }

Result<std::vector<int64_t>> ValuesOf(const char* name, const aclIntArray* array) {
  if (array == nullptr) return std::vector<int64_t>{};
  const auto found = table<aclIntArray>.Find(array);
  if (found == nullptr) return Status::InvalidArgument(std::string(name) + ": not created, or destroyed");
  return found->values;
}

Result<std::vector<const aclTensor*>> TensorsOf(const char* name, const aclTensorList* list) {
  const auto found = table<aclTensorList>.Find(list);
  if (found == nullptr) return Status::InvalidArgument(std::string(name) + ": not created, or destroyed");
  std::vector<const aclTensor*> tensors;
  for (const auto& tensor : found->tensors) tensors.push_back(tensor.get());
  return tensors;
}

std::optional<DType> DTypeOf(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT: return DType::kF32;
    case ACL_FLOAT16: return DType::kF16;
    case ACL_BF16: return DType::kBF16;
    case ACL_INT8: return DType::kI8;
    case ACL_UINT8: return DType::kU8;
    case ACL_BOOL: return DType::kBool;
    case ACL_INT32: return DType::kI32;
    case ACL_INT64: return DType::kI64;
    case ACL_UINT64: return DType::kU64;
    default: return {};
  }
}

std::optional<DType> StorageTypeOf(aclDataType dtype) {
  if (const auto own = DTypeOf(dtype)) return own;
  switch (aclDataTypeSize(dtype)) {
    case 1: return DType::kU8;
    case 2: return DType::kF16;
    case 4: return DType::kI32;
    case 8: return DType::kI64;
    default: return {};
  }
}

}  // namespace fa::aclnn

using namespace fa::aclnn;  // NOLINT(google-build-using-namespace): the functions below are its C interface

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* data) {
  return Created([&]() -> aclTensor* {
    if (viewDims == nullptr && viewDimsNum > 0) return Refused("viewDims: null");
    auto tensor = std::make_shared<aclTensor>();
    tensor->dtype = dataType;
    tensor->format = format;
    tensor->offset = offset;
    tensor->data = data;
    tensor->storage_elements = storageDims == nullptr ? 0 : ElementsOf({storageDims, storageDimsNum});
    // A shape with too many dimensions keeps one more than an operator accepts, so every operator still refuses the
    // tensor.
    for (uint64_t i = 0; i < viewDimsNum && i <= fa::Dims::kMaxRank; ++i) {
      tensor->shape.push_back(viewDims[i]);
      if (stride != nullptr) tensor->stride.push_back(stride[i]);
    }
    return table<aclTensor>.Insert(std::move(tensor));
  });
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return Created([&]() -> aclScalar* {
    if (value == nullptr) return Refused("value: null");
    auto scalar = std::make_shared<aclScalar>();
    scalar->dtype = dataType;
    std::memcpy(scalar->value, value, aclDataTypeSize(dataType));
    return table<aclScalar>.Insert(std::move(scalar));
  });
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) { return CreateArray<aclIntArray>(value, size); }
aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return CreateArray<aclFloatArray>(value, size);
}
aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) { return CreateArray<aclBoolArray>(value, size); }

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return Created([&]() -> aclTensorList* {
    if (value == nullptr && size > 0) return Refused("value: null");
    auto list = std::make_shared<aclTensorList>();
    for (uint64_t i = 0; i < size; ++i) {
      list->tensors.push_back(FindTensor(value[i]));
      // A null entry stays null, and an operator that needs this tensor reports it. A handle that is not alive is
      // refused.
      if (value[i] != nullptr && list->tensors.back() == nullptr)
        return Refused("value: a tensor that was not created, or was destroyed");
    }
    return table<aclTensorList>.Insert(std::move(list));
  });
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) { return Destroy("tensor", tensor); }
aclnnStatus aclDestroyScalar(const aclScalar* scalar) { return Destroy("scalar", scalar); }
aclnnStatus aclDestroyIntArray(const aclIntArray* array) { return Destroy("array", array); }
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) { return Destroy("array", array); }
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) { return Destroy("array", array); }

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return GetOf("tensor", tensor, {{"viewDims", viewDims}, {"viewDimsNum", viewDimsNum}}, [&](const aclTensor& found) {
    *viewDims = new int64_t[static_cast<size_t>(found.shape.rank())];
    std::copy(found.shape.begin(), found.shape.end(), *viewDims);
    *viewDimsNum = static_cast<uint64_t>(found.shape.rank());
  });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return GetOf("tensor", tensor, {{"dataType", dataType}}, [&](const aclTensor& found) { *dataType = found.dtype; });
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return GetOf("array", array, {{"size", size}}, [&](const aclIntArray& found) { *size = found.values.size(); });
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return Guarded([&]() -> aclnnStatus {
    if (const aclnnStatus error = CheckNotNull({{"array", array}}); error != ACLNN_SUCCESS) return error;
    const auto list = table<aclTensorList>.Remove(array);
    if (list == nullptr) return NotAlive("array");
    for (const auto& tensor : list->tensors) table<aclTensor>.Remove(tensor.get());
    return ACLNN_SUCCESS;
  });
}
