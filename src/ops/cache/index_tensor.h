#ifndef FA_OPS_INDEX_TENSOR_H_
#define FA_OPS_INDEX_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::ops {

/// The entries of an i32 or i64 tensor of one or two dimensions.
class IndexTensor {
 public:
  IndexTensor() = default;  ///< makes an absent tensor
  IndexTensor(const void* data, DType dtype, const Dims& shape, const Dims& stride);

  [[nodiscard]] bool absent() const { return data_ == nullptr; }
  [[nodiscard]] int64_t operator[](int64_t i) const { return At(i, 0); }
  [[nodiscard]] int64_t At(int64_t i, int64_t j) const {
    const std::byte* at = data_ + i * stride_[0] + j * stride_[1];
    if (wide_) {
      int64_t value = 0;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    int32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  /// Returns the largest of the first `count` entries. The tensor must have one dimension.
  [[nodiscard]] int64_t Max(int64_t count) const;

 private:
  const std::byte* data_ = nullptr;
  bool wide_ = false;
  int64_t stride_[2] = {0, 0};  // strides in bytes
};

/// Checks a tensor of i32 or i64 with `rank` dimensions and any strides.
[[nodiscard]] Status CheckIndexTensor(const char* name, const TensorView& tensor, int rank);

}  // namespace fa::ops

#endif  // FA_OPS_INDEX_TENSOR_H_
