#ifndef FA_ACLNN_BLOCK_SPARSE_CALL_H_
#define FA_ACLNN_BLOCK_SPARSE_CALL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "acl/acl.h"
#include "aclnn/runtime/strided_copy.h"
#include "fa/mask.h"
#include "fa/pair_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa::aclnn {

/// The parameters that block-sparse attention and its gradient share, except tensors.
struct BlockSparseParameters {
  const aclIntArray *block_shape = nullptr, *lengths_q = nullptr, *lengths_kv = nullptr;
  const char *q_layout = nullptr, *kv_layout = nullptr;
  int64_t heads_kv = 0, mask_type = 0;
};

/// The call in the library's terms.
struct BlockSparseCall {
  Layout layout = Layout::kTND;
  int64_t batch = 0, heads = 0, rows = 0;      ///< sizes of the query; in TND `rows` is T
  PairLists sizes;                             ///< the sizes of the mask's blocks
  std::vector<int64_t> lengths_q, lengths_kv;  ///< lengths, in TND as prefix sums

  [[nodiscard]] bool packed() const { return layout == Layout::kTND; }

  /// Returns the mask with which the gradient leaves out rows and keys past a length.
  [[nodiscard]] Mask Rule() const;
  /// Checks the shape of softmaxLse.
  [[nodiscard]] Status CheckLse(const Dims& shape) const;
  /// Returns a checked softmaxLse as the library takes it, [B,N,S] or [T,N].
  template <typename View>
  [[nodiscard]] View Statistics(View lse) const {
    const Dims stride = lse.stride.empty() ? DenseStride(lse.shape) : lse.stride;
    const int row = layout == Layout::kBSND ? 1 : 2;
    lse.shape = packed() ? Dims{rows, heads} : Dims{batch, heads, rows};
    lse.stride = packed() ? Dims{stride[0], stride[1]} : Dims{stride[0], stride[3 - row], stride[row]};
    return lse;
  }
  /// Makes the mask. While only shapes are known, the mask keeps every block. If there is no mask tensor, there is no
  /// mask.
  [[nodiscard]] Result<std::optional<PairMask>> MaskOf(const TensorView& blocks, bool shape_only) const;
};

/// Checks the parameters against the views of query and key.
[[nodiscard]] Result<BlockSparseCall> BlockSparseCallOf(const BlockSparseParameters& parameters, const TensorView& q,
                                                        const TensorView& k);

}  // namespace fa::aclnn

#endif  // FA_ACLNN_BLOCK_SPARSE_CALL_H_
