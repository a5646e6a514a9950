#ifndef FA_OPS_BIND_MERGE_H_
#define FA_OPS_BIND_MERGE_H_

#include <cstdint>
#include <vector>

#include "fa/merge.h"
#include "fa/status.h"
#include "layout/rows.h"
#include "layout/rows_view.h"
#include "ops/bind/planned_tensors.h"

namespace fa::ops {

/// A validated merge: sizes and strides. A TND tensor counts as one batch element of T rows.
struct BoundMerge {
  int64_t batch = 1, heads = 0, rows = 0, head_size = 0;
  DType dtype = DType::kF32;
  layout::Rows prev_out, cur_out, out;
  layout::Stats prev_max, prev_sum, cur_max, cur_sum, softmax_max, softmax_sum;
  std::vector<PlannedTensor> planned;  ///< the tensors of the planned call, as TensorsOf lists them
};

/// The tensors of a merge in a run, with their layouts and addresses.
struct MergeRows {
  layout::RowsView prev_out, cur_out;
  layout::StatsView prev_max, prev_sum, cur_max, cur_sum;
  layout::MutableRowsView out;
  layout::MutableStatsView softmax_max, softmax_sum;
};

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundMerge> BindMerge(const MergeArgs& args, const MergeOptions& options);

/// Does the checks of BindMerge and of CheckMergeRunArgs, without a plan.
[[nodiscard]] Status CheckMergeArgs(const MergeArgs& args, const MergeOptions& options);

/// Checks in Run that the tensors are the planned ones. Also checks that no output shares elements with another tensor,
/// except with the previous partial result that it replaces.
[[nodiscard]] Status CheckMergeRunArgs(const BoundMerge& bound, const MergeArgs& args);

/// Returns the tensors of checked arguments.
[[nodiscard]] MergeRows RowsOf(const BoundMerge& bound, const MergeArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_MERGE_H_
