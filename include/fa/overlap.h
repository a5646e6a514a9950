#ifndef FA_OVERLAP_H_
#define FA_OVERLAP_H_

/// @file
/// Whether tensors share memory, for interfaces that pass copies of tensors to the library.
/// @code{.cpp}
/// std::vector<float> values(100);
/// const fa::TensorView even = fa::View(values.data(), {50}, {2});
/// const fa::TensorView odd = fa::View(values.data() + 1, {49}, {2});
/// const bool shared = fa::Overlap(even, odd);  // false: they alternate in memory
/// @endcode

#include "fa/export.h"
#include "fa/tensor.h"

namespace fa {

/// Returns whether an element of `a` shares a byte with an element of `b`. An output of a call must not share a byte
/// with any other tensor of the call. The answer is exact for strided views: views whose byte ranges intersect may
/// still share nothing. If the exact answer would take more than a fixed amount of work, the answer is yes. A view
/// without data or without elements shares nothing. Strides are >= 0; an empty stride means dense.
///
/// This function is for interfaces that pass copies of tensors to the library. The library itself checks the tensors
/// that it gets.
[[nodiscard]] FA_API bool Overlap(const TensorView& a, const TensorView& b);

/// Returns whether two elements of different indices of `tensor` share a byte.
[[nodiscard]] FA_API bool OverlapsItself(const TensorView& tensor);

}  // namespace fa

#endif  // FA_OVERLAP_H_
