#ifndef FA_SHARED_KV_ATTENTION_GRAD_H_
#define FA_SHARED_KV_ATTENTION_GRAD_H_

/// @file
/// Attention over original and compressed keys, backward, and its head-mean probabilities.
/// @code{.cpp}
/// // out and lse are the results of SharedKvAttention on q and ori.
/// std::vector<float> q(128 * 16 * 64), ori(128 * 64), out(q), d_out(q), lse(128 * 16), dq(q), d_ori(ori);
/// const fa::Dims rows = {1, 128, 16, 64}, keys = {1, 128, 1, 64};
/// fa::SharedKvGradArgs args;
/// args.q = fa::View(q.data(), rows), args.ori_kv = fa::View(ori.data(), keys);
/// args.out = fa::View(out.data(), rows), args.d_out = fa::View(d_out.data(), rows);
/// args.lse = fa::View(lse.data(), {1, 1, 128, 16});
/// args.dq = fa::View(dq.data(), rows), args.d_ori_kv = fa::View(d_ori.data(), keys);
/// return fa::SharedKvAttentionGrad(
///     args, {.ori_mask = fa::SparseMask::kBand, .window_left = 31, .window_right = 0});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/shared_kv_attention.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the backward: the inputs of SharedKvAttention, its results, and the gradient of its output. SharedKvArgs
/// has the shapes of the inputs; keys do not lie in pages. A tensor with null data is absent.
struct SharedKvGradArgs {
  TensorView q, ori_kv, cmp_kv;
  TensorView ori_indices, cmp_indices;
  TensorView ori_topk_length, cmp_topk_length;
  TensorView sink;
  std::span<const int64_t> cu_q, cu_ori, cu_cmp;
  std::span<const int64_t> used_q, used_ori, used_cmp;
  std::span<const int64_t> cmp_residual;
  TensorView out;    ///< the forward's output; needed with dq
  TensorView d_out;  ///< gradient of out, with its shape and type; needed with dq
  TensorView lse;    ///< the forward's lse; rows whose lse is -inf or inf are skipped

  /// Shape and type of q. Without dq, the call computes the L1 norms alone, and no other gradient may be given.
  MutableTensorView dq;
  MutableTensorView d_ori_kv, d_cmp_kv;  ///< optional, shapes and types of ori_kv and cmp_kv
  MutableTensorView dsink;               ///< optional, only with sink, f32 [N]
  /// Optional; ori_l1_norm needs ori_kv, and cmp_l1_norm needs cmp_kv. f32 in the shape of ori_indices or cmp_indices:
  /// for each entry, the mean over the heads of its key's probability, or 0 if the entry has no key. Without a list the
  /// shape is [B, S1, 1, C], column j stands for key j of the sequence, and C is at least the largest number of keys in
  /// use.
  MutableTensorView ori_l1_norm, cmp_l1_norm;
};

/// Computes the gradients of SharedKvAttention. P = exp(scale q K^T - lse), dS = P (d_out K^T - rowsum(d_out * out)),
/// dq = scale dS K, and the rows of d_ori_kv and d_cmp_kv are scale dS^T q + P^T d_out. dsink is the sum over rows of
/// -exp(sink - lse) * rowsum(d_out * out).
///
/// The gradients of a key that no token attends to, and of a row without keys, are 0. Tokens add to a key's gradient in
/// ascending order, so the bits do not depend on the number of threads. dsink is accumulated in f64, in the order of
/// the tokens. Everything else is accumulated in f32 and rounded once.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows SparseFlashMlaGrad and SparseFlashMlaSoftmaxL1Norm of CANN, with a fixed order of sums.
FA_API Status SharedKvAttentionGrad(const SharedKvGradArgs& args, const SharedKvOptions& options,
                                    Context* context = nullptr);

/// Plans a call of SharedKvAttentionGrad: validates it, cuts it into tiles and lays out its workspace. The function
/// reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SharedKvGradArgs>> PlanSharedKvAttentionGrad(const SharedKvGradArgs& args,
                                                                   const SharedKvOptions& options,
                                                                   Context* context = nullptr);

}  // namespace fa

#endif  // FA_SHARED_KV_ATTENTION_GRAD_H_
