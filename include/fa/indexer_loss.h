#ifndef FA_INDEXER_LOSS_H_
#define FA_INDEXER_LOSS_H_

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

/// What the loss of all tokens adds up to.
enum class LossReduction : uint8_t {
  kSum,   ///< over tokens, as the device
  kMean,  ///< divided by the number of query tokens in use, the gradients too
};

/// The distribution that the indexer learns.
enum class IndexerTarget : uint8_t {
  kHeadMean,  ///< the mean over the heads of the attention's probabilities, as the device
  kL1,        ///< this mean divided by its sum over the row's selection: the published definition
};

/// Tensors of the fused KL loss on a selection. Shapes are written for BSND; TND has [T, ...] for [B, S, ...].
/// Null data = absent.
struct SparseIndexerLossArgs {
  TensorView q, k;              ///< of the attention: [B, S1, N, D] and [B, S2, 1, D]; f32, bf16 or f16
  TensorView q_rope, k_rope;    ///< optional, together
  TensorView q_index, k_index;  ///< of the indexer: [B, S1, Nidx, Didx] and [B, S2, 1, Didx], type of q
  TensorView weights;           ///< [B, S1, Nidx], type of q or f32
  TensorView sparse_indices;    ///< i32 or i64 [B, S1, 1, K], as SparseAttentionArgs, block size 1
  TensorView softmax_max;       ///< of SparseFlashAttention, f32 [B, 1, S1, N] (TND [1, T, N]); they may count sinks in
  TensorView softmax_sum;       ///< of SparseFlashAttention, f32 of the same shape
  TensorView p_head_mean;       ///< optional, of SparseFlashAttention: q, k and statistics are then not read
  std::span<const int64_t> lengths_q, lengths_kv;  ///< as SparseAttentionArgs

  MutableTensorView dq_index;  ///< shape and type of q_index
  MutableTensorView dk_index;  ///< shape and type of k_index
  MutableTensorView dweights;  ///< shape and type of weights
  MutableTensorView loss;      ///< f32, one element
};

/// The same on every key below the limit, for attention with key heads of its own.
struct DenseIndexerLossArgs {
  TensorView q, k;               ///< [B, S1, N, D] and [B, S2, Nkv, D], N % Nkv == 0; f32, bf16 or f16
  TensorView q_rope, k_rope;     ///< optional, together
  TensorView q_index, k_index;   ///< [B, S1, Nidx, Didx] and [B, S2, 1, Didx], type of q
  TensorView weights;            ///< [B, S1, Nidx], type of q or f32
  TensorView softmax_max;        ///< of the attention, f32 [B, Nkv, S1, N/Nkv] (TND [Nkv, T, N/Nkv])
  TensorView softmax_sum;        ///< of the attention, f32 of the same shape
  TensorView softmax_max_index;  ///< of the indexer's scores, f32 [B, 1, S1] (TND [1, T])
  TensorView softmax_sum_index;  ///< of the indexer's scores, f32 of the same shape
  std::span<const int64_t> lengths_q, lengths_kv;

  MutableTensorView dq_index, dk_index, dweights, loss;  ///< as SparseIndexerLossArgs
};

/// Everything of a loss call on a selection that is not a tensor.
struct SparseIndexerLossOptions {
  Layout layout = Layout::kBSND;    ///< BSND or TND
  std::optional<float> scale = {};  ///< of the attention; default 1/sqrt(D + Drope)
  SparseMask mask = SparseMask::kRightDownCausal;
  LossReduction reduction = LossReduction::kSum;
  IndexerTarget target = IndexerTarget::kHeadMean;
  bool check_indices = true;  ///< as SparseAttentionOptions
};

/// The same of a loss on every key, which has no indices.
struct DenseIndexerLossOptions {
  Layout layout = Layout::kBSND;
  std::optional<float> scale = {};
  SparseMask mask = SparseMask::kRightDownCausal;
  LossReduction reduction = LossReduction::kSum;
  IndexerTarget target = IndexerTarget::kHeadMean;
};

/// Loss and gradients at once. With p the target over a row's entries, I the indexer's scores and y = softmax(I):
///   loss     = sum of p' (ln p' - ln y') with p' = max(p, 1e-8), y' = max(y, 1e-8)
///   dI       = y - p;  dweights, dq_index, dk_index: those of LightningIndexerGrad with d_values = dI
/// A row without keys adds nothing and gets gradients 0. Tokens add up in ascending order, in f32, rounded once; the
/// bits do not depend on the number of threads.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows SparseLightningIndexerGradKLLoss of CANN and DeepSeek-V3.2 (2025).
FA_API Status SparseLightningIndexerGradKLLoss(const SparseIndexerLossArgs& args,
                                               const SparseIndexerLossOptions& options, Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<SparseIndexerLossArgs>> PlanSparseLightningIndexerGradKLLoss(
    const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options, Context* context = nullptr);

/// The same with p from the attention's statistics over all keys and y = exp(I - softmax_max_index) /
/// softmax_sum_index. kL1 divides p by its sum over the row. Everything else as above.
/// @return kInvalidArgument naming the tensor, kOutOfMemory; then nothing was written. Re-entrant.
/// Follows DenseLightningIndexerGradKLLoss of CANN.
FA_API Status DenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options,
                                              Context* context = nullptr);

/// Validates, tiles and books the same call; reads shapes, strides, types, lengths and which tensors are present.
FA_API Result<PlanFor<DenseIndexerLossArgs>> PlanDenseLightningIndexerGradKLLoss(const DenseIndexerLossArgs& args,
                                                                                 const DenseIndexerLossOptions& options,
                                                                                 Context* context = nullptr);

}  // namespace fa

#endif  // FA_INDEXER_LOSS_H_
