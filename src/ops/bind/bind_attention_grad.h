#ifndef FA_OPS_BIND_ATTENTION_GRAD_H_
#define FA_OPS_BIND_ATTENTION_GRAD_H_

#include <cstdint>

#include "fa/flash_attention_grad.h"
#include "layout/rows.h"
#include "ops/bind/bind_attention.h"

namespace fa::ops {

/// A validated call of the dense backward: sizes, rules and strides; no pointer, no layout string.
struct BoundAttentionGrad {
  /// The forward that is differentiated. Its out and statistics are inputs here (any strides, 0 included), both
  /// statistics are present, lse is not.
  BoundAttention forward;
  layout::Rows d_out, dq, dk, dv;
  layout::Rows dq_rope, dk_rope;  ///< where forward.has_rope
  bool has_dpse = false, has_dslopes = false, has_dsink = false;
  PseRows dpse;  ///< its own strides; never compressed; sums over b and i where shared
  /// dslopes [B,N]: where b's row of N slopes starts; [N]: 0, a sum over the batch (dslopes_shared).
  int64_t dslopes_batch_stride = 0;
  bool dslopes_shared = false;
};

/// Finds every user error of the dense backward that does not depend on addresses or contents.
[[nodiscard]] Result<BoundAttentionGrad> BindAttentionGrad(const AttentionGradArgs& args,
                                                           const AttentionOptions& options);

/// As CheckRunArgs, for the tensors of the backward.
[[nodiscard]] Status CheckGradRunArgs(const BoundAttentionGrad& bound, const AttentionGradArgs& args);

/// The forward call that `args` differentiates, for the code that both share. Its outputs hold the caller's inputs:
/// they are not written through it.
[[nodiscard]] AttentionArgs ForwardArgs(const AttentionGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_ATTENTION_GRAD_H_
