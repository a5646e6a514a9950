#ifndef FA_LAYOUT_OVERLAP_H_
#define FA_LAYOUT_OVERLAP_H_

#include "fa/tensor.h"

namespace fa::layout {

/// Returns whether two elements of different indices of `tensor` share a byte. Strides must be filled in.
[[nodiscard]] bool OverlapsItself(const TensorView& tensor);

/// Returns whether an element of `a` shares a byte with an element of `b`. The answer is exact for strided views: views
/// whose byte ranges intersect may still share nothing. Strides must be filled in. After a fixed amount of work the
/// search (overlap.cc) gives up, and the answer is yes.
[[nodiscard]] bool Overlap(const TensorView& a, const TensorView& b);

}  // namespace fa::layout

#endif  // FA_LAYOUT_OVERLAP_H_
