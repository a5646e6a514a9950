#ifndef FA_OPS_BIND_SHARED_KV_H_
#define FA_OPS_BIND_SHARED_KV_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "ops/sparse/bind_sparse.h"

namespace fa::ops {

/// What a validated call of attention over original and compressed keys has beyond other sparse calls.
struct SharedKvParts {
  layout::Rows ori_topk_length, cmp_topk_length;
  /// If entries of ori_indices are rows of pages: the block table 0, 1, 2, ..., which all batch elements share.
  std::vector<int32_t> every_page;
  /// The lengths as the caller gave them, with their names.
  std::vector<std::pair<const char*, std::vector<int64_t>>> lengths;
};

/// A validated call: sparse attention whose second tensor of keys has the compressed keys.
struct BoundSharedKv : BoundSparse {
  SharedKvParts parts;
};
struct BoundSharedKvGrad : BoundSparseGrad {
  SharedKvParts parts;
};

/// Find every user error that does not depend on addresses or contents.
[[nodiscard]] Result<BoundSharedKv> BindSharedKv(const SharedKvArgs& args, const SharedKvOptions& options);
[[nodiscard]] Result<BoundSharedKvGrad> BindSharedKvGrad(const SharedKvGradArgs& args, const SharedKvOptions& options);

/// Check in Run what the functions of the same names in bind_sparse.h check.
[[nodiscard]] Status CheckSparseRunArgs(const BoundSharedKv& bound, const SharedKvArgs& args);
[[nodiscard]] Status CheckSparseGradRunArgs(const BoundSharedKvGrad& bound, const SharedKvGradArgs& args);

/// Returns the tensors of checked arguments. The tensors point into `bound`.
[[nodiscard]] SparseRows RowsOf(const BoundSharedKv& bound, const SharedKvArgs& args);
[[nodiscard]] SparseGradRows RowsOf(const BoundSharedKvGrad& bound, const SharedKvGradArgs& args);

}  // namespace fa::ops

#endif  // FA_OPS_BIND_SHARED_KV_H_
