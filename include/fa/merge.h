#ifndef FA_MERGE_H_
#define FA_MERGE_H_

/// @file
/// Merges two partial results of attention over disjoint sets of keys.
/// @code{.cpp}
/// // Both partials are results of FlashAttention with softmax_max and softmax_sum. The merge overwrites the first.
/// std::vector<float> out(8 * 128 * 64), cur_out(out), max(8 * 128), sum(max), cur_max(max), cur_sum(max);
/// fa::MergeArgs args;
/// args.out = fa::View(out.data(), {1, 8, 128, 64}), args.prev_out = args.out;
/// args.softmax_max = fa::View(max.data(), {1, 8, 128}), args.prev_max = args.softmax_max;
/// args.softmax_sum = fa::View(sum.data(), {1, 8, 128}), args.prev_sum = args.softmax_sum;
/// args.cur_out = fa::View(cur_out.data(), {1, 8, 128, 64});
/// args.cur_max = fa::View(cur_max.data(), {1, 8, 128});
/// args.cur_sum = fa::View(cur_sum.data(), {1, 8, 128});
/// return fa::MergePartials(args, {.layout = fa::Layout::kBNSD});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Two partial results of attention over disjoint sets of keys, and the result for both sets together.
struct MergeArgs {
  TensorView prev_out, cur_out;                     ///< in the options' layout; f32, bf16 or f16
  TensorView prev_max, cur_max;                     ///< f32 [B, N, S] (TND [T, N])
  TensorView prev_sum, cur_sum;                     ///< f32 in the shape of prev_max
  MutableTensorView out, softmax_max, softmax_sum;  ///< may be the very tensors of prev (same data, shape and strides)
};

/// The layout of the tensors of MergeArgs.
struct MergeOptions {
  Layout layout = Layout::kSBH;  ///< any layout
  int64_t heads = 0;             ///< number of query heads, for BSH and SBH; 0: taken from the statistics
};

/// Merges partial results in f32, and rounds each result once. With outputs o, maxima m and sums s of prev (p) and cur
/// (c): m = max(mp, mc), s = sp e^(mp-m) + sc e^(mc-m), out = op e^(mp-m) sp/s + oc e^(mc-m) sc/s. A row of a partial
/// counts as absent if its sum is 0, or if its max is -FLT_MAX and its sum +FLT_MAX. If one of the two rows is absent,
/// the other row is returned unchanged. If both are absent, out = 0, max = -FLT_MAX and sum = +FLT_MAX.
/// @return kInvalidArgument with the tensor's name. The function follows RingAttentionUpdate of CANN.
FA_API Status MergePartials(const MergeArgs& args, const MergeOptions& options, Context* context = nullptr);

/// Plans a call of MergePartials: validates it and cuts it into tasks. The function reads shapes, strides and types.
FA_API Result<PlanFor<MergeArgs>> PlanMergePartials(const MergeArgs& args, const MergeOptions& options,
                                                    Context* context = nullptr);

/// Checks a call of MergePartials without running it, and returns the error that the call would return. If tensors have
/// null data, the function checks their shapes, strides and types, but not whether they overlap.
FA_API Status CheckMergePartials(const MergeArgs& args, const MergeOptions& options);

}  // namespace fa

#endif  // FA_MERGE_H_
