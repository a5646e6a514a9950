#include "aclnn/runtime/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace fa::aclnn {
namespace {

template <typename Element>
struct Copier {
  const Dims& shape;
  const Dims& from_stride;
  const Dims& to_stride;

  void Copy(int dim, const Element* from, Element* to) const {
    if (dim == shape.rank()) {
      *to = *from;
      return;
    }
    const bool innermost = dim == shape.rank() - 1;
    for (int64_t i = 0; i < shape[dim]; ++i) {
      const Element* source = from + i * from_stride[dim];
      Element* target = to + i * to_stride[dim];
      if (innermost) {
        *target = *source;
      } else {
        Copy(dim + 1, source, target);
      }
    }
  }
};

template <typename Element>
void CopyAs(const TensorView& from, const MutableTensorView& to) {
  const Dims from_stride = from.stride.empty() ? DenseStride(from.shape) : from.stride;
  const Dims to_stride = to.stride.empty() ? DenseStride(to.shape) : to.stride;
  Copier<Element>{from.shape, from_stride, to_stride}.Copy(0, static_cast<const Element*>(from.data),
                                                           static_cast<Element*>(to.data));
}

}  // namespace

Dims DenseStride(const Dims& shape) {
  Dims stride = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    stride[i] = step;
    // The stride of an empty tensor may exceed 63 bits, but is never used.
    if (i > 0 && __builtin_mul_overflow(step, std::max<int64_t>(shape[i], 1), &step)) {
      step = std::numeric_limits<int64_t>::max();
    }
  }
  return stride;
}

bool IsDense(const TensorView& tensor) {
  if (tensor.stride.empty()) return true;
  int64_t step = 1;
  for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
    if (tensor.shape[i] > 1 && tensor.stride[i] != step) return false;
    step *= std::max<int64_t>(tensor.shape[i], 1);
  }
  return true;
}

void CopyElements(const TensorView& from, const MutableTensorView& to) {
  switch (SizeOf(from.dtype)) {
    case 1: return CopyAs<uint8_t>(from, to);
    case 2: return CopyAs<uint16_t>(from, to);
    case 4: return CopyAs<uint32_t>(from, to);
    default: return CopyAs<uint64_t>(from, to);
  }
}

}  // namespace fa::aclnn
