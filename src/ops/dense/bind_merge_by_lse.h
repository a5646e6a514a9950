#ifndef FA_OPS_BIND_MERGE_BY_LSE_H_
#define FA_OPS_BIND_MERGE_BY_LSE_H_

#include <cstdint>
#include <vector>

#include "fa/merge_by_lse.h"
#include "fa/status.h"
#include "ops/bind/planned_tensors.h"

namespace fa::ops {

/// Strides of a tensor [M, D], in elements.
struct RowStrides {
  int64_t row = 0, column = 1;
};

/// A validated merge by lse: sizes and strides.
struct BoundMergeByLse {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kF32;
  float lse_without_keys = 0;
  std::vector<int64_t> lse;           ///< stride of each part's lse
  std::vector<RowStrides> local_out;  ///< strides of each part
  RowStrides out;
  int64_t lse_out = 0;                                        ///< stride of the result's lse
  std::vector<PlannedTensor> planned;                         ///< the planned outputs, as TensorsOf lists them
  std::vector<PlannedTensor> planned_lse, planned_local_out;  ///< what the plan keeps about the tensors of each part
};

/// Finds every user error of the call that does not depend on addresses or contents.
[[nodiscard]] Result<BoundMergeByLse> BindMergeByLse(const MergeByLseArgs& args, const MergeByLseOptions& options);

/// Checks in Run that the tensors are the planned ones, and that no output shares elements with another tensor.
[[nodiscard]] Status CheckMergeByLseRunArgs(const BoundMergeByLse& bound, const MergeByLseArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_MERGE_BY_LSE_H_
