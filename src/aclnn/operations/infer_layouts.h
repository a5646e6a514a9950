#ifndef FA_ACLNN_INFER_LAYOUTS_H_
#define FA_ACLNN_INFER_LAYOUTS_H_

#include "fa/tensor.h"

namespace fa::aclnn {

/// Returns whether the sequences of this layout of fused inference follow one another without padding.
[[nodiscard]] constexpr bool IsPacked(Layout layout) {
  return layout == Layout::kTND || layout == Layout::kNTD || layout == Layout::kTND_NTD || layout == Layout::kNTD_TND;
}

/// Returns whether the inputs of this layout are [B,N,S,D].
[[nodiscard]] constexpr bool HeadsBeforeRows(Layout layout) {
  return layout == Layout::kBNSD || layout == Layout::kBNSD_BSND || layout == Layout::kBNSD_NBSD;
}

}  // namespace fa::aclnn

#endif  // FA_ACLNN_INFER_LAYOUTS_H_
