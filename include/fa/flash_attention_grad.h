#ifndef FA_FLASH_ATTENTION_GRAD_H_
#define FA_FLASH_ATTENTION_GRAD_H_

/// @file
/// Dense attention, backward.
/// @code{.cpp}
/// // out, max and sum are the results of FlashAttention on q, k and v.
/// std::vector<float> q(8 * 128 * 64), k(q), v(q), out(q), d_out(q), dq(q), dk(q), dv(q), max(8 * 128), sum(max);
/// const auto heads = [](auto& values) { return fa::View(values.data(), {1, 8, 128, 64}); };
/// fa::AttentionGradArgs args;
/// args.q = heads(q), args.k = heads(k), args.v = heads(v), args.out = heads(out), args.d_out = heads(d_out);
/// args.softmax_max = fa::View(max.data(), {1, 8, 128});
/// args.softmax_sum = fa::View(sum.data(), {1, 8, 128});
/// args.dq = heads(dq), args.dk = heads(dk), args.dv = heads(dv);
/// return fa::FlashAttentionGrad(args, {.mask = fa::Mask::Causal()});
/// @endcode

#include <cstdint>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/options.h"
#include "fa/pair_mask.h"
#include "fa/plan.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// Tensors of the dense backward: the inputs of the forward call (AttentionArgs has their shapes), its results, and the
/// gradient of its output. A tensor with null data is absent.
struct AttentionGradArgs {
  TensorView q, k, v, q_rope, k_rope;
  TensorView pse, dense_mask;
  const PairMask* pair_mask = nullptr;
  TensorView drop_mask, sink;
  std::span<const int64_t> cu_q, cu_kv;
  TensorView out;          ///< the forward's output, rounded as the forward has rounded it
  TensorView d_out;        ///< gradient of out, with its shape and type and any strides (0 included)
  TensorView softmax_max;  ///< result of the forward, f32 [B, N, Sq] or [B, N, Sq, 8] (TND [T, N] or [T, N, 8])
  TensorView softmax_sum;  ///< result of the forward, f32, in either shape of softmax_max

  MutableTensorView dq;       ///< shape and type of q
  MutableTensorView dk;       ///< shape and type of k; summed over the query heads of a group
  MutableTensorView dv;       ///< shape and type of v; summed like dk
  MutableTensorView dq_rope;  ///< gradient of q_rope, if q_rope is given
  MutableTensorView dk_rope;  ///< gradient of k_rope, if k_rope is given
  /// Optional, for pse types 0 and 1: the type and shape of pse. If heads share a pse of rank 4 (stride 0), dpse may
  /// have one head. dpse is summed over the dimensions that pse broadcasts. The compressed form of 1024 rows has no
  /// dpse.
  MutableTensorView dpse;
  MutableTensorView dslopes;  ///< gradient of the slopes, optional, for pse types 2 and 3: f32, shape of pse
  /// The gradient of sink, optional, only if sink is given: f32, shape of sink. It is summed over dimensions that sink
  /// broadcasts.
  MutableTensorView dsink;
};

/// Computes the gradients of FlashAttention: with P recomputed from softmax_max and softmax_sum, Dr = rowsum(d_out *
/// out), dP = dropout(d_out V^T) and dS = P (dP - Dr),
///   dv = dropout(P)^T d_out,  dq = scale dS K,  dk = scale dS^T Q.
///
/// A masked pair and a row without keys add exactly nothing to any gradient, whatever q, k, v, d_out or pse hold there.
/// TND rows past the last prefix sum are written 0. Everything is accumulated in f32 and rounded once.
///
/// With Accumulation::kDeterministic, the default of Context, the bits do not depend on the number of threads, the
/// other sequences of the call, or the layout. dslopes, dsink and a broadcast dpse are sums over the batch, which are
/// added in ascending order of b.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. The algorithm is FlashAttention-2 (Dao 2023), section 3.1, in one pass over key blocks.
FA_API Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options,
                                 Context* context = nullptr);

/// Plans a call of FlashAttentionGrad: validates it, cuts it into tiles and lays out its workspace. The function reads
/// shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& args,
                                                                 const AttentionOptions& options,
                                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_FLASH_ATTENTION_GRAD_H_
