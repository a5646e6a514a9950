#ifndef FA_MERGE_H_
#define FA_MERGE_H_

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Two partial results of attention over disjoint sets of keys, and where their union goes.
struct MergeArgs {
  TensorView prev_out, cur_out;                     ///< layout's shape; f32, bf16 or f16
  TensorView prev_max, cur_max;                     ///< f32 [B, N, S] (TND [T, N])
  TensorView prev_sum, cur_sum;                     ///< f32 of the same shape
  MutableTensorView out, softmax_max, softmax_sum;  ///< may be the very tensors of prev (same data, shape and strides)
};

/// How the tensors of MergeArgs are laid out.
struct MergeOptions {
  Layout layout = Layout::kSBH;  ///< any of the layouts
  int64_t heads = 0;             ///< for BSH and SBH; 0: taken from the statistics
};

/// Merges partial results: m = max(mp, mc), s = sp e^(mp-m) + sc e^(mc-m),
/// out = op e^(mp-m) sp/s + oc e^(mc-m) sc/s, in f32, rounded once. A partial whose sum is 0, or whose max is -FLT_MAX
/// with sum +FLT_MAX, counts as absent: the other is returned unchanged; both absent: 0, -FLT_MAX, +FLT_MAX.
/// @return kInvalidArgument naming the tensor. Follows RingAttentionUpdate of CANN.
FA_API Status MergePartials(const MergeArgs& args, const MergeOptions& options, Context* context = nullptr);

/// Validates and cuts the same call; reads shapes, strides and types.
FA_API Result<PlanFor<MergeArgs>> PlanMergePartials(const MergeArgs& args, const MergeOptions& options,
                                                    Context* context = nullptr);

/// Returns the error with which MergePartials would refuse the same call, without running it. Tensors may have null
/// data; then their shapes, strides and types are checked, but not whether they overlap.
FA_API Status CheckMergePartials(const MergeArgs& args, const MergeOptions& options);

}  // namespace fa

#endif  // FA_MERGE_H_
