#ifndef FA_SPARSE_FLASH_ATTENTION_GRAD_H_
#define FA_SPARSE_FLASH_ATTENTION_GRAD_H_

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_flash_attention.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the sparse backward: those of the forward call (SparseAttentionArgs has their shapes; keys do not lie in
/// pages), its results, and the gradient of its output. Null data = absent.
struct SparseAttentionGradArgs {
  TensorView q, k, v, q_rope, k_rope;
  TensorView sink;
  TensorView sparse_indices;
  std::span<const int64_t> lengths_q, lengths_kv;
  TensorView out;          ///< the forward's output, as rounded there
  TensorView d_out;        ///< gradient of out; its shape and type
  TensorView softmax_max;  ///< the forward's
  TensorView softmax_sum;  ///< the forward's; a row of sum 0 is skipped

  MutableTensorView dq;       ///< shape and type of q
  MutableTensorView dk;       ///< shape and type of k; without v it holds the gradient of v in its first Dv columns too
  MutableTensorView dv;       ///< shape and type of v; with v only
  MutableTensorView dq_rope;  ///< with q_rope
  MutableTensorView dk_rope;  ///< with k_rope
  MutableTensorView dsink;  ///< optional, with sink: f32 [N], -sum over rows exp(sink - max) / sum rowsum(d_out * out)
};

/// Gradients of SparseFlashAttention, with the same selection rule: P from softmax_max and softmax_sum,
/// dS = P (d_out V^T - rowsum(d_out * out)), dq = scale dS K, dk = scale dS^T Q, dv = P^T d_out. A key that no token
/// selects and a row without keys get 0. Tokens add to dk and dv in ascending order, so the bits do not depend on the
/// number of threads; everything is accumulated in f32 (dsink in f64, over ascending tokens) and rounded once.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows SparseFlashAttentionGrad of CANN, whose atomic additions it replaces by an order.
FA_API Status SparseFlashAttentionGrad(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options,
                                       Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseAttentionGradArgs>> PlanSparseFlashAttentionGrad(const SparseAttentionGradArgs& args,
                                                                             const SparseAttentionOptions& options,
                                                                             Context* context = nullptr);

}  // namespace fa

#endif  // FA_SPARSE_FLASH_ATTENTION_GRAD_H_
