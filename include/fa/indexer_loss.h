#ifndef FA_INDEXER_LOSS_H_
#define FA_INDEXER_LOSS_H_

/// @file
/// The KL loss that trains an indexer, with its gradients, on a selection of keys or on all keys.
/// @code{.cpp}
/// // out, max, sum and indices are results of FlashAttention, SparseFlashAttention and LightningIndexer.
/// std::vector<float> q(128 * 8 * 64), k(128 * 64), qi(128 * 4 * 32), ki(128 * 32), w(128 * 4), max(128 * 8), sum(max);
/// std::vector<float> dqi(qi), dki(ki), dw(w), loss(1);
/// std::vector<int32_t> indices(128 * 16);
/// fa::SparseIndexerLossArgs a;
/// a.q = fa::View(q.data(), {1, 128, 8, 64}), a.k = fa::View(k.data(), {1, 128, 1, 64});
/// a.q_index = fa::View(qi.data(), {1, 128, 4, 32}), a.k_index = fa::View(ki.data(), {1, 128, 1, 32});
/// a.weights = fa::View(w.data(), {1, 128, 4}), a.sparse_indices = fa::View(indices.data(), {1, 128, 1, 16});
/// a.softmax_max = fa::View(max.data(), {1, 1, 128, 8}), a.softmax_sum = fa::View(sum.data(), {1, 1, 128, 8});
/// a.dq_index = fa::View(dqi.data(), {1, 128, 4, 32}), a.dk_index = fa::View(dki.data(), {1, 128, 1, 32});
/// a.dweights = fa::View(dw.data(), {1, 128, 4}), a.loss = fa::View(loss.data(), {1});
/// return fa::SparseLightningIndexerGradKLLoss(a, {});
/// @endcode

#include <cstdint>
#include <optional>
#include <span>

#include "fa/context.h"
#include "fa/export.h"
#include "fa/plan.h"
#include "fa/sparse_mask.h"
#include "fa/status.h"
#include "fa/tensor.h"

namespace fa {

/// How the losses of tokens become one loss.
enum class LossReduction : uint8_t {
  kSum,   ///< their sum, as on the device
  kMean,  ///< their sum divided by the number of query tokens in use; the gradients are divided too
};

/// The distribution that the indexer learns.
enum class IndexerTarget : uint8_t {
  /// the mean over the heads of the attention's probabilities, as on the device. With sinks, the sum of these
  /// probabilities over the heads is divided by the number of heads minus the sum of the sinks' probabilities.
  kHeadMean,
  kL1,  ///< the mean of kHeadMean, divided by its sum over the row's keys, as in DeepSeek-V3.2
  /// p_head_mean as it is given, with any sum. Then dI = y sum(p) - p, the gradient of -sum of p ln y. kGiven is the
  /// target of SparseLightningIndexerKLLossGrad of CANN, in the sparse loss only.
  kGiven,
};

/// Tensors of the KL loss on selected keys. Shapes are written for BSND; TND has [T, ...] for [B, S, ...]. A tensor
/// with null data is absent.
struct SparseIndexerLossArgs {
  TensorView q, k;              ///< tensors of the attention: [B, S1, N, D] and [B, S2, 1, D]; f32, bf16 or f16
  TensorView q_rope, k_rope;    ///< optional, given together: Qr Kr^T is added to Q K^T
  TensorView q_index, k_index;  ///< tensors of the indexer: [B, S1, Nidx, Didx] and [B, S2, 1, Didx], type of q
  TensorView weights;           ///< [B, S1, Nidx], type of q or f32
  TensorView sparse_indices;    ///< i32 or i64 [B, S1, 1, K], as in SparseAttentionArgs, block size 1
  TensorView softmax_max;  ///< result of SparseFlashAttention, with or without sinks: f32 [B, 1, S1, N] (TND [1, T, N])
  TensorView softmax_sum;  ///< result of SparseFlashAttention, f32 in the shape of softmax_max
  /// Optional: the attention's sinks, f32 [N], not together with p_head_mean. Rows whose sinks have all the weight have
  /// no loss and no gradients.
  TensorView sink;
  /// Optional result of SparseFlashAttention; if it is given, q, k, softmax_max and softmax_sum are not read, and may
  /// be absent.
  TensorView p_head_mean;
  std::span<const int64_t> lengths_q, lengths_kv;  ///< numbers of rows in use, as in SparseAttentionArgs
  /// Optional with TND, one number per sequence: how many of its rows are in use. The other rows count as rows past the
  /// length.
  std::span<const int64_t> used_q, used_kv;
  /// How many tokens follow the tokens that the last key stands for. Optional, one number per batch element, less than
  /// SparseIndexerLossOptions::cmp_ratio; default 0.
  std::span<const int64_t> residual_kv;

  MutableTensorView dq_index;  ///< shape and type of q_index
  MutableTensorView dk_index;  ///< shape and type of k_index
  MutableTensorView dweights;  ///< shape and type of weights
  MutableTensorView loss;      ///< f32, one element
  /// Optional, f32 [B, S1, K] (TND [T, K]): y of each entry, 0 if it has no key or if sinks have all the weight.
  MutableTensorView softmax_index;
};

/// Tensors of the KL loss on every key that the mask allows. The attention may have several key heads.
struct DenseIndexerLossArgs {
  TensorView q, k;              ///< [B, S1, N, D] and [B, S2, Nkv, D], N % Nkv == 0; f32, bf16 or f16
  TensorView q_rope, k_rope;    ///< optional, given together: Qr Kr^T is added to Q K^T
  TensorView q_index, k_index;  ///< [B, S1, Nidx, Didx] and [B, S2, 1, Didx], type of q
  TensorView weights;           ///< [B, S1, Nidx], type of q or f32
  /// Maximum of each row's attention scores, f32 [B, Nkv, S1, N/Nkv], TND [Nkv, T, N/Nkv].
  TensorView softmax_max;
  TensorView softmax_sum;        ///< softmax sum of each row's attention scores, f32 in the shape of softmax_max
  TensorView softmax_max_index;  ///< maximum of each row's indexer scores, f32 [B, 1, S1] (TND [1, T])
  TensorView softmax_sum_index;  ///< softmax sum of each row's indexer scores, f32 in the shape of softmax_max_index
  std::span<const int64_t> lengths_q, lengths_kv;

  MutableTensorView dq_index, dk_index, dweights, loss;  ///< gradients and loss, as in SparseIndexerLossArgs
};

/// The options of a loss on selected keys: everything but the tensors.
struct SparseIndexerLossOptions {
  Layout layout = Layout::kBSND;    ///< BSND or TND
  std::optional<float> scale = {};  ///< scale of the attention; default 1/sqrt(D + Drope)
  SparseMask mask = SparseMask::kRightDownCausal;
  LossReduction reduction = LossReduction::kSum;
  IndexerTarget target = IndexerTarget::kHeadMean;
  bool check_indices = true;  ///< whether wrong indices are refused, as in SparseAttentionOptions
  /// The number of tokens that each key stands for, 1..2^20. With kRightDownCausal the limit of query token t is then
  /// (S2 * cmp_ratio + residual_kv - S1 + t + 1) / cmp_ratio. It is rounded down and kept within 0..S2. S1 and S2 count
  /// the rows in use.
  int64_t cmp_ratio = 1;
};

/// The options of a loss on every key: everything but the tensors.
struct DenseIndexerLossOptions {
  Layout layout = Layout::kBSND;
  std::optional<float> scale = {};
  SparseMask mask = SparseMask::kRightDownCausal;
  LossReduction reduction = LossReduction::kSum;
  IndexerTarget target = IndexerTarget::kHeadMean;
};

/// Computes the loss and its gradients. For the entries of each row, let p be the target (IndexerTarget), I the
/// indexer's scores and y = softmax(I). Then
///   loss = sum of p' (ln p' - ln y') with p' = max(p, 1e-8), y' = max(y, 1e-8)
///   dI   = y - p, with kGiven y sum(p) - p
/// dweights, dq_index and dk_index are the gradients of LightningIndexerGrad with d_values = dI. A row without keys
/// adds nothing to the loss, and its gradients are 0. Terms are added in f32 in the ascending order of the tokens, and
/// sums are rounded once. The bits do not depend on the number of threads.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows SparseLightningIndexerGradKLLoss of CANN and DeepSeek-V3.2 (2025).
FA_API Status SparseLightningIndexerGradKLLoss(const SparseIndexerLossArgs& args,
                                               const SparseIndexerLossOptions& options, Context* context = nullptr);

/// Plans a call of SparseLightningIndexerGradKLLoss: validates it, cuts it into tiles and lays out its workspace. The
/// function reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseIndexerLossArgs>> PlanSparseLightningIndexerGradKLLoss(
    const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options, Context* context = nullptr);

/// Computes the loss on every key and its gradients. p is computed from the attention's statistics over all keys, and y
/// = exp(I - softmax_max_index) / softmax_sum_index. kL1 divides p by its sum over the row. Everything else is as in
/// SparseLightningIndexerGradKLLoss.
/// @return kInvalidArgument with the tensor's name, or kOutOfMemory. After an error nothing was written. The function
/// is re-entrant. It follows DenseLightningIndexerGradKLLoss of CANN.
FA_API Status DenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options,
                                              Context* context = nullptr);

/// Plans a call of DenseLightningIndexerGradKLLoss: validates it, cuts it into tiles and lays out its workspace. The
/// function reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<DenseIndexerLossArgs>> PlanDenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args,
                                                                                 const DenseIndexerLossOptions& options,
                                                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_INDEXER_LOSS_H_
