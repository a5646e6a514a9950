#ifndef FA_MERGE_BY_LSE_H_
#define FA_MERGE_BY_LSE_H_

/// @file
/// Merges any number of partial results of attention, over disjoint sets of keys, by their lse.
/// @code{.cpp}
/// std::vector<float> lse(2 * 64), parts(2 * 64 * 128), out(64 * 128);
/// const fa::TensorView lses[] = {fa::View(lse.data(), {64}), fa::View(lse.data() + 64, {64})};
/// const fa::TensorView outs[] = {fa::View(parts.data(), {64, 128}), fa::View(parts.data() + 64 * 128, {64, 128})};
/// return fa::MergeByLse({.lse = lses, .local_out = outs, .out = fa::View(out, {64, 128})}, {});
/// @endcode

#include <cstdint>
#include <limits>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Partial results of M rows, and the merged result. Tensors may have any strides.
struct MergeByLseArgs {
  std::span<const TensorView> lse;        ///< f32 [M] per part; -inf or +inf: the part has no keys for this row
  std::span<const TensorView> local_out;  ///< [M, D] per part; f32, bf16 or f16, all of one type
  MutableTensorView out;                  ///< [M, D], type of local_out
  MutableTensorView lse_out;              ///< f32 [M], or absent
};

/// The options of MergeByLse.
struct MergeByLseOptions {
  /// The lse of a row that no part has keys for: -inf, or +inf as on the device.
  float lse_without_keys = -std::numeric_limits<float>::infinity();
};

/// Merges partial results. Over the parts i that have keys, in ascending order and in f32,
///   m = max lse_i;  w_i = exp(lse_i - m);  out = sum of w_i local_out_i / sum of w_i;  lse_out = m + ln(sum of w_i).
/// `out` is rounded once. A part without keys is not read; if no part has keys, out = 0. A NaN in an lse makes its
/// row NaN. Bits do not depend on the number of threads, the other rows or strides.
/// @return kInvalidArgument with the tensor's name, for example local_out[2]. Outputs must not overlap each other or an
/// input. The function is re-entrant and follows AttentionUpdate of CANN.
FA_API Status MergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options, Context* context = nullptr);

/// Plans a call of MergeByLse. The function reads shapes, strides, types and which tensors are present.
FA_API Result<PlanFor<MergeByLseArgs>> PlanMergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options,
                                                      Context* context = nullptr);

}  // namespace fa

#endif  // FA_MERGE_BY_LSE_H_
