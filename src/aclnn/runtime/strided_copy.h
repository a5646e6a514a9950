#ifndef FA_ACLNN_STRIDED_COPY_H_
#define FA_ACLNN_STRIDED_COPY_H_

#include "fa/tensor.h"

namespace fa::aclnn {

/// Returns the dense row-major strides of a shape.
[[nodiscard]] Dims DenseStride(const Dims& shape);

/// Returns whether the elements lie one after another, in row-major order.
[[nodiscard]] bool IsDense(const TensorView& tensor);

/// Copies all elements between two views of the same shape and type.
void CopyElements(const TensorView& from, const MutableTensorView& to);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_STRIDED_COPY_H_
