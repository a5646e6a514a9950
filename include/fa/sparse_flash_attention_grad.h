#ifndef FA_SPARSE_FLASH_ATTENTION_GRAD_H_
#define FA_SPARSE_FLASH_ATTENTION_GRAD_H_

/// @file
/// Sparse top-k attention, backward.
/// @code{.cpp}
/// // out, max and sum are the results of SparseFlashAttention on q, k, v and indices.
/// std::vector<float> q(128 * 16 * 64), k(4096 * 64), v(k), out(q), d_out(q), max(128 * 16), sum(max);
/// std::vector<float> dq(q), dk(k), dv(k);
/// std::vector<int32_t> indices(128 * 512);
/// const fa::Dims rows = {1, 128, 16, 64}, keys = {1, 4096, 1, 64}, statistics = {1, 1, 128, 16};
/// fa::SparseAttentionGradArgs args;
/// args.q = fa::View(q.data(), rows), args.k = fa::View(k.data(), keys), args.v = fa::View(v.data(), keys);
/// args.out = fa::View(out.data(), rows), args.d_out = fa::View(d_out.data(), rows);
/// args.softmax_max = fa::View(max.data(), statistics), args.softmax_sum = fa::View(sum.data(), statistics);
/// args.sparse_indices = fa::View(indices.data(), {1, 128, 1, 512});
/// args.dq = fa::View(dq.data(), rows), args.dk = fa::View(dk.data(), keys), args.dv = fa::View(dv.data(), keys);
/// return fa::SparseFlashAttentionGrad(args, {});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_flash_attention.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the sparse backward: the inputs of the forward call, its results, and the gradient of its output.
/// SparseAttentionArgs has the shapes of the inputs; keys do not lie in pages. A tensor with null data is absent.
struct SparseAttentionGradArgs {
  TensorView q, k, v, q_rope, k_rope;
  TensorView sink;
  TensorView sparse_indices;
  std::span<const int64_t> lengths_q, lengths_kv;
  TensorView out;          ///< the forward's output, rounded as the forward has rounded it
  TensorView d_out;        ///< gradient of out, with its shape and type
  TensorView softmax_max;  ///< result of the forward
  TensorView softmax_sum;  ///< result of the forward; rows whose sum is 0 are skipped

  MutableTensorView dq;       ///< shape and type of q
  MutableTensorView dk;       ///< shape and type of k; without v, the first Dv columns of dk include the gradient of v
  MutableTensorView dv;       ///< only if v is given: shape and type of v
  MutableTensorView dq_rope;  ///< gradient of q_rope, if q_rope is given
  MutableTensorView dk_rope;  ///< gradient of k_rope, if k_rope is given
  /// Optional, only with sink, f32 [N]: the gradient of sink, which is the sum over rows of -exp(sink - max) / sum *
  /// rowsum(d_out * out).
  MutableTensorView dsink;
};

/// Computes the gradients of SparseFlashAttention, for the same selected keys. P follows from softmax_max and
/// softmax_sum, and dS = P (d_out V^T - rowsum(d_out * out)), dq = scale dS K, dk = scale dS^T Q, dv = P^T d_out.
///
/// The gradients of a key that no token selects, and of a row without keys, are 0. Tokens add to dk and dv in ascending
/// order, so the bits do not depend on the number of threads. dsink is accumulated in f64, in the ascending order of
/// the tokens. Everything else is accumulated in f32 and rounded once.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows SparseFlashAttentionGrad of CANN, but adds in a fixed order instead of atomically.
FA_API Status SparseFlashAttentionGrad(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options,
                                       Context* context = nullptr);

/// Plans a call of SparseFlashAttentionGrad: validates it, cuts it into tiles and lays out its workspace. The function
/// reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseAttentionGradArgs>> PlanSparseFlashAttentionGrad(const SparseAttentionGradArgs& args,
                                                                             const SparseAttentionOptions& options,
                                                                             Context* context = nullptr);

}  // namespace fa

#endif  // FA_SPARSE_FLASH_ATTENTION_GRAD_H_
