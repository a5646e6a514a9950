#include "aclnn/calls/sparse_face.h"

#include <algorithm>
#include <cmath>

#include "aclnnop/aclnn_dense_lightning_indexer_grad_kl_loss.h"
#include "aclnnop/aclnn_dense_lightning_indexer_softmax_lse.h"
#include "aclnnop/aclnn_lightning_indexer.h"
#include "aclnnop/aclnn_lightning_indexer_grad.h"
#include "aclnnop/aclnn_sparse_flash_attention.h"
#include "aclnnop/aclnn_sparse_flash_attention_grad.h"
#include "aclnnop/aclnn_sparse_lightning_indexer_grad_kl_loss.h"

namespace fa::test {
namespace {

double ScaleOf(std::optional<float> scale, const TensorView& q, const TensorView& q_rope) {
  if (scale) return static_cast<double>(*scale);
  int64_t size = q.shape[q.shape.rank() - 1];
  if (q_rope.data != nullptr) size += q_rope.shape[q_rope.shape.rank() - 1];
  return 1 / std::sqrt(static_cast<double>(size));
}

const aclIntArray* ArrayOf(std::span<const int64_t> values, Handles& handles) {
  return values.empty() ? nullptr : handles.Array({values.begin(), values.end()});
}

template <typename Args, typename Options>
void SetLossParameters(const Args& args, const Options& options, Handles& handles, SparseParameters& p) {
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.query_rope = handles.Tensor(args.q_rope);
  p.key_rope = handles.Tensor(args.k_rope);
  p.query_index = handles.Tensor(args.q_index);
  p.key_index = handles.Tensor(args.k_index);
  p.weights = handles.Tensor(args.weights);
  p.max = handles.Tensor(args.softmax_max);
  p.sum = handles.Tensor(args.softmax_sum);
  p.q_array = ArrayOf(args.lengths_q, handles);
  p.kv_array = ArrayOf(args.lengths_kv, handles);
  p.dq_index = handles.Tensor(args.dq_index);
  p.dk_index = handles.Tensor(args.dk_index);
  p.dweights = handles.Tensor(args.dweights);
  p.loss = handles.Tensor(args.loss);
  p.scale = ScaleOf(options.scale, args.q, args.q_rope);
}

template <typename Options>
void SetRule(const Options& options, SparseParameters& p) {
  p.layout = p.layout_kv = Name(options.layout);
  p.sparse_mode = static_cast<int64_t>(options.mask);
}

}  // namespace

aclnnStatus GetWorkspaceSize(SparseOperator op, const SparseParameters& p, uint64_t* size, aclOpExecutor** executor) {
  // The interface takes its strings as char*, and does not write to them.
  char* layout = p.no_layout ? nullptr : const_cast<char*>(p.layout.c_str());
  char* layout_kv = p.no_layout ? nullptr : const_cast<char*>(p.layout_kv.c_str());
  switch (op) {
    case SparseOperator::kForward:
      return aclnnSparseFlashAttentionGetWorkspaceSize(
          p.query, p.key, p.value, p.indices, p.block_table, p.q_lengths, p.kv_lengths, p.query_rope, p.key_rope,
          p.scale, p.block_size, layout, layout_kv, p.sparse_mode, p.pre, p.next, p.attention_mode, p.return_lse, p.out,
          p.max, p.sum, size, executor);
    case SparseOperator::kForwardV2:
      return aclnnSparseFlashAttentionV2GetWorkspaceSize(
          p.query, p.key, p.value, p.indices, p.block_table, p.q_lengths, p.kv_lengths, p.query_rope, p.key_rope,
          p.sinks, p.scale, p.block_size, layout, layout_kv, p.sparse_mode, p.pre, p.next, p.attention_mode,
          p.return_lse, p.out, p.max, p.sum, size, executor);
    case SparseOperator::kBackwardV2:
      return aclnnSparseFlashAttentionGradV2GetWorkspaceSize(
          p.query, p.key, p.value, p.indices, p.d_out, p.out, p.max, p.sum, p.sinks, p.q_lengths, p.kv_lengths,
          p.query_rope, p.key_rope, p.scale, p.block_size, layout, p.sparse_mode, p.pre, p.next, p.deterministic, p.dq,
          p.dk, p.dv, p.dq_rope, p.dk_rope, p.d_sinks, size, executor);
    case SparseOperator::kSparseLossV2:
      return aclnnSparseLightningIndexerGradKLLossV2GetWorkspaceSize(
          p.query, p.key, p.query_index, p.key_index, p.weights, p.indices, p.max, p.sum, p.query_rope, p.key_rope,
          p.q_array, p.kv_array, p.sinks, p.scale, layout, p.sparse_mode, p.pre, p.next, p.deterministic, p.dq_index,
          p.dk_index, p.dweights, p.loss, size, executor);
    case SparseOperator::kBackward:
      return aclnnSparseFlashAttentionGradGetWorkspaceSize(
          p.query, p.key, p.value, p.indices, p.d_out, p.out, p.max, p.sum, p.q_lengths, p.kv_lengths, p.query_rope,
          p.key_rope, p.scale, p.block_size, layout, p.sparse_mode, p.pre, p.next, p.deterministic, p.dq, p.dk, p.dv,
          p.dq_rope, p.dk_rope, size, executor);
    case SparseOperator::kIndexer:
      return aclnnLightningIndexerGetWorkspaceSize(p.query, p.key, p.weights, p.q_lengths, p.kv_lengths, p.block_table,
                                                   layout, layout_kv, p.count, p.sparse_mode, p.pre, p.next,
                                                   p.return_values, p.indices, p.values, size, executor);
    case SparseOperator::kIndexerGrad:
      return aclnnLightningIndexerGradGetWorkspaceSize(p.query, p.key, p.dy, p.indices, p.weights, p.q_lengths,
                                                       p.kv_lengths, p.head_num, layout, p.sparse_mode, p.pre, p.next,
                                                       p.deterministic, p.dq, p.dk, p.dweights, size, executor);
    case SparseOperator::kIndexerLse:
      return aclnnDenseLightningIndexerSoftmaxLseGetWorkspaceSize(p.query_index, p.key_index, p.weights, p.q_array,
                                                                  p.kv_array, layout, p.sparse_mode, p.pre, p.next,
                                                                  p.max, p.sum, size, executor);
    case SparseOperator::kSparseLoss:
      return aclnnSparseLightningIndexerGradKLLossGetWorkspaceSize(
          p.query, p.key, p.query_index, p.key_index, p.weights, p.indices, p.max, p.sum, p.query_rope, p.key_rope,
          p.q_array, p.kv_array, p.scale, layout, p.sparse_mode, p.pre, p.next, p.deterministic, p.dq_index, p.dk_index,
          p.dweights, p.loss, size, executor);
    case SparseOperator::kDenseLoss:
      return aclnnDenseLightningIndexerGradKLLossGetWorkspaceSize(
          p.query, p.key, p.query_index, p.key_index, p.weights, p.max, p.sum, p.max_index, p.sum_index, p.query_rope,
          p.key_rope, p.q_array, p.kv_array, p.scale, layout, p.sparse_mode, p.pre, p.next, p.dq_index, p.dk_index,
          p.dweights, p.loss, size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(SparseOperator op, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  switch (op) {
    case SparseOperator::kForward: return aclnnSparseFlashAttention(workspace, size, executor, stream);
    case SparseOperator::kForwardV2: return aclnnSparseFlashAttentionV2(workspace, size, executor, stream);
    case SparseOperator::kBackwardV2: return aclnnSparseFlashAttentionGradV2(workspace, size, executor, stream);
    case SparseOperator::kSparseLossV2:
      return aclnnSparseLightningIndexerGradKLLossV2(workspace, size, executor, stream);
    case SparseOperator::kBackward: return aclnnSparseFlashAttentionGrad(workspace, size, executor, stream);
    case SparseOperator::kIndexer: return aclnnLightningIndexer(workspace, size, executor, stream);
    case SparseOperator::kIndexerGrad: return aclnnLightningIndexerGrad(workspace, size, executor, stream);
    case SparseOperator::kIndexerLse: return aclnnDenseLightningIndexerSoftmaxLse(workspace, size, executor, stream);
    case SparseOperator::kSparseLoss: return aclnnSparseLightningIndexerGradKLLoss(workspace, size, executor, stream);
    case SparseOperator::kDenseLoss: return aclnnDenseLightningIndexerGradKLLoss(workspace, size, executor, stream);
  }
  return ACLNN_ERR_INNER;
}

aclTensor* LengthTensor(std::span<const int64_t> values, aclDataType dtype, Handles& handles) {
  if (values.empty()) return nullptr;
  void* memory = handles.Memory(values.size() * sizeof(int64_t));
  if (dtype == ACL_INT64) {
    std::copy(values.begin(), values.end(), static_cast<int64_t*>(memory));
  } else {
    std::transform(values.begin(), values.end(), static_cast<int32_t*>(memory),
                   [](int64_t value) { return static_cast<int32_t>(value); });
  }
  return handles.Tensor(memory, dtype, {static_cast<int64_t>(values.size())});
}

SparseParameters ParametersOf(const SparseAttentionArgs& args, const SparseAttentionOptions& options, Handles& handles,
                              aclDataType lengths) {
  SparseParameters p;
  SetRule(options, p);
  if (args.block_table.data != nullptr) p.layout_kv = "PA_BSND";
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.value = handles.Tensor(args.v);
  p.query_rope = handles.Tensor(args.q_rope);
  p.key_rope = handles.Tensor(args.k_rope);
  p.indices = handles.Tensor(args.sparse_indices);
  p.block_table = handles.Tensor(args.block_table);
  p.q_lengths = LengthTensor(args.lengths_q, lengths, handles);
  p.kv_lengths = LengthTensor(args.lengths_kv, lengths, handles);
  p.out = handles.Tensor(args.out);
  p.max = handles.Tensor(args.softmax_max);
  p.sum = handles.Tensor(args.softmax_sum);
  p.return_lse = p.max != nullptr && p.sum != nullptr;
  p.scale = ScaleOf(options.scale, args.q, args.q_rope);
  p.block_size = options.block_size;
  p.sinks = handles.Tensor(args.sink);
  return p;
}

SparseParameters ParametersOf(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options,
                              Handles& handles, aclDataType lengths) {
  SparseParameters p;
  SetRule(options, p);
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.value = handles.Tensor(args.v);
  p.query_rope = handles.Tensor(args.q_rope);
  p.key_rope = handles.Tensor(args.k_rope);
  p.indices = handles.Tensor(args.sparse_indices);
  p.q_lengths = LengthTensor(args.lengths_q, lengths, handles);
  p.kv_lengths = LengthTensor(args.lengths_kv, lengths, handles);
  p.out = handles.Tensor(args.out);
  p.d_out = handles.Tensor(args.d_out);
  p.max = handles.Tensor(args.softmax_max);
  p.sum = handles.Tensor(args.softmax_sum);
  p.dq = handles.Tensor(args.dq);
  p.dk = handles.Tensor(args.dk);
  p.dv = handles.Tensor(args.dv);
  p.dq_rope = handles.Tensor(args.dq_rope);
  p.dk_rope = handles.Tensor(args.dk_rope);
  p.scale = ScaleOf(options.scale, args.q, args.q_rope);
  p.block_size = options.block_size;
  p.sinks = handles.Tensor(args.sink);
  p.d_sinks = handles.Tensor(args.dsink);
  return p;
}

SparseParameters ParametersOf(const LightningIndexerArgs& args, const LightningIndexerOptions& options,
                              Handles& handles, aclDataType lengths) {
  SparseParameters p;
  SetRule(options, p);
  if (args.block_table.data != nullptr) p.layout_kv = "PA_BSND";
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.weights = handles.Tensor(args.weights);
  p.block_table = handles.Tensor(args.block_table);
  p.q_lengths = LengthTensor(args.lengths_q, lengths, handles);
  p.kv_lengths = LengthTensor(args.lengths_kv, lengths, handles);
  p.indices = handles.Tensor(args.sparse_indices);
  p.values = handles.Tensor(args.sparse_values);
  p.return_values = p.values != nullptr;
  p.count = args.sparse_indices.shape[args.sparse_indices.shape.rank() - 1];
  return p;
}

SparseParameters ParametersOf(const LightningIndexerGradArgs& args, const LightningIndexerGradOptions& options,
                              Handles& handles, aclDataType lengths) {
  SparseParameters p;
  SetRule(options, p);
  p.query = handles.Tensor(args.q);
  p.key = handles.Tensor(args.k);
  p.dy = handles.Tensor(args.d_values);
  p.indices = handles.Tensor(args.sparse_indices);
  p.weights = handles.Tensor(args.weights);
  p.q_lengths = LengthTensor(args.lengths_q, lengths, handles);
  p.kv_lengths = LengthTensor(args.lengths_kv, lengths, handles);
  p.dq = handles.Tensor(args.dq);
  p.dk = handles.Tensor(args.dk);
  p.dweights = handles.Tensor(args.dweights);
  return p;
}

SparseParameters ParametersOf(const DenseIndexerLseArgs& args, const DenseIndexerLseOptions& options,
                              Handles& handles) {
  SparseParameters p;
  SetRule(options, p);
  p.query_index = handles.Tensor(args.q_index);
  p.key_index = handles.Tensor(args.k_index);
  p.weights = handles.Tensor(args.weights);
  p.q_array = ArrayOf(args.lengths_q, handles);
  p.kv_array = ArrayOf(args.lengths_kv, handles);
  p.max = handles.Tensor(args.softmax_max_index);
  p.sum = handles.Tensor(args.softmax_sum_index);
  return p;
}

SparseParameters ParametersOf(const SparseIndexerLossArgs& args, const SparseIndexerLossOptions& options,
                              Handles& handles) {
  SparseParameters p;
  SetRule(options, p);
  SetLossParameters(args, options, handles, p);
  p.indices = handles.Tensor(args.sparse_indices);
  p.sinks = handles.Tensor(args.sink);
  return p;
}

SparseParameters ParametersOf(const DenseIndexerLossArgs& args, const DenseIndexerLossOptions& options,
                              Handles& handles) {
  SparseParameters p;
  SetRule(options, p);
  SetLossParameters(args, options, handles, p);
  p.max_index = handles.Tensor(args.softmax_max_index);
  p.sum_index = handles.Tensor(args.softmax_sum_index);
  return p;
}

TokenCase UsualTokens(DType dtype) {
  TokenCase tokens;
  tokens.dtype = dtype;
  tokens.lengths = {{7, 3}, {40, 21}};
  tokens.slots = 9;
  return tokens;
}

}  // namespace fa::test
