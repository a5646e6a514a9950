#ifndef FA_ACLNN_DESCRIPTORS_H_
#define FA_ACLNN_DESCRIPTORS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "acl/acl.h"
#include "fa/status.h"
#include "fa/tensor.h"

/// The arguments of aclCreateTensor. Only the address changes later.
struct aclTensor {
  fa::Dims shape, stride;  ///< an empty stride means dense
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  int64_t offset = 0;            ///< offset of the first element, in elements
  int64_t storage_elements = 0;  ///< number of elements that storageDims claims, or 0

  std::atomic<void*> data = nullptr;
};

struct aclIntArray {
  std::vector<int64_t> values;
};

namespace fa::aclnn {

/// Returns the tensor of a handle, or null if the handle is not alive.
[[nodiscard]] std::shared_ptr<aclTensor> FindTensor(const aclTensor* tensor);
/// Returns the integers of the array, and none for null. Returns kInvalidArgument for a handle that is not alive.
[[nodiscard]] Result<std::vector<int64_t>> ValuesOf(const char* name, const aclIntArray* array);

/// Returns the tensors of a list, some of which may be null. Returns kInvalidArgument for a handle that is not alive.
[[nodiscard]] Result<std::vector<const aclTensor*>> TensorsOf(const char* name, const aclTensorList* list);

/// Returns the library's type, or nothing for a type that no operator takes.
[[nodiscard]] std::optional<DType> DTypeOf(aclDataType dtype);
/// Returns a type of the library whose elements have the same size, which is the type itself if the library has it.
/// Returns nothing if the elements do not have 1, 2, 4 or 8 bytes.
[[nodiscard]] std::optional<DType> StorageTypeOf(aclDataType dtype);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_DESCRIPTORS_H_
