#ifndef FA_LAYOUT_OVERLAP_H_
#define FA_LAYOUT_OVERLAP_H_

#include "fa/tensor.h"

namespace fa::layout {

/// Returns whether two elements of different indices of `tensor` share a byte. Strides must be filled in.
[[nodiscard]] bool OverlapsItself(const TensorView& tensor);

/// Returns whether an element of `a` shares a byte with an element of `b`. The answer is exact for strided views, not a
/// comparison of byte ranges. The question is a bounded Diophantine problem. The search branches over the strides, the
/// largest first. Strides must be filled in. After a fixed amount of work the search gives up, and the answer is yes.
[[nodiscard]] bool Overlap(const TensorView& a, const TensorView& b);

}  // namespace fa::layout

#endif  // FA_LAYOUT_OVERLAP_H_
