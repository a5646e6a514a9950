#ifndef FA_OVERLAP_H_
#define FA_OVERLAP_H_

#include "fa/export.h"
#include "fa/tensor.h"

namespace fa {

/// Whether an element of `a` shares a byte with an element of `b`, which an output of a call must not do with any other
/// tensor of the call. Exact for strided views, not a comparison of byte ranges; after a fixed amount of work the
/// answer is yes. A view without data or without elements shares nothing. Strides >= 0, an empty stride means dense.
/// This is for interfaces that pass copies of tensors to the library: the library itself checks the tensors that it is
/// given.
[[nodiscard]] FA_API bool Overlap(const TensorView& a, const TensorView& b);

/// Whether two elements of different indices of `tensor` share a byte.
[[nodiscard]] FA_API bool OverlapsItself(const TensorView& tensor);

}  // namespace fa

#endif  // FA_OVERLAP_H_
