#include "aclnn/calls/infer_face.h"

#include "aclnnop/aclnn_fused_infer_attention_score.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v2.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v3.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v4.h"
#include "aclnnop/aclnn_fused_infer_attention_score_v5.h"

namespace fa::test {

aclnnStatus GetWorkspaceSize(InferVersion version, const InferParameters& p, uint64_t* size, aclOpExecutor** executor) {
  char* layout = const_cast<char*>(p.layout.c_str());
  // GetWorkspaceSize and GetMaxWorkspaceSize of a version have the same parameters.
  const auto choose = [&](auto of_these_lengths, auto of_any_lengths) {
    return version < InferVersion::kV2Max ? of_these_lengths : of_any_lengths;
  };
  switch (version) {
    case InferVersion::kV1:
      return aclnnFusedInferAttentionScoreGetWorkspaceSize(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.antiquant_scale, p.antiquant_offset, p.block_table, p.query_padding, p.kv_padding, p.heads,
          p.scale, p.pre, p.next, layout, p.heads_kv, p.sparse_mode, p.inner_precise, p.block_size, p.antiquant_mode,
          p.lse_flag, p.out, p.lse, size, executor);
    case InferVersion::kV2:
    case InferVersion::kV2Max:
      return choose(aclnnFusedInferAttentionScoreV2GetWorkspaceSize,
                    aclnnFusedInferAttentionScoreV2GetMaxWorkspaceSize)(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.antiquant_scale, p.antiquant_offset, p.block_table, p.query_padding, p.kv_padding, p.key_scale,
          p.key_offset, p.value_scale, p.value_offset, p.key_prefix, p.value_prefix, p.prefix_length, p.heads, p.scale,
          p.pre, p.next, layout, p.heads_kv, p.sparse_mode, p.inner_precise, p.block_size, p.antiquant_mode, p.lse_flag,
          p.key_mode, p.value_mode, p.out, p.lse, size, executor);
    case InferVersion::kV3:
    case InferVersion::kV3Max:
      return choose(aclnnFusedInferAttentionScoreV3GetWorkspaceSize,
                    aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize)(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.antiquant_scale, p.antiquant_offset, p.block_table, p.query_padding, p.kv_padding, p.key_scale,
          p.key_offset, p.value_scale, p.value_offset, p.key_prefix, p.value_prefix, p.prefix_length, p.query_rope,
          p.key_rope, p.rope_scale, p.heads, p.scale, p.pre, p.next, layout, p.heads_kv, p.sparse_mode, p.inner_precise,
          p.block_size, p.antiquant_mode, p.lse_flag, p.key_mode, p.value_mode, p.out, p.lse, size, executor);
    case InferVersion::kV4:
    case InferVersion::kV4Max:
      return choose(aclnnFusedInferAttentionScoreV4GetWorkspaceSize,
                    aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize)(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.antiquant_scale, p.antiquant_offset, p.block_table, p.query_padding, p.kv_padding, p.key_scale,
          p.key_offset, p.value_scale, p.value_offset, p.key_prefix, p.value_prefix, p.prefix_length, p.query_rope,
          p.key_rope, p.rope_scale, p.query_scale, p.sink, p.heads, p.scale, p.pre, p.next, layout, p.heads_kv,
          p.sparse_mode, p.inner_precise, p.block_size, p.antiquant_mode, p.lse_flag, p.key_mode, p.value_mode,
          p.query_mode, p.out, p.lse, size, executor);
    case InferVersion::kV5:
    case InferVersion::kV5Max:
      return choose(aclnnFusedInferAttentionScoreV5GetWorkspaceSize,
                    aclnnFusedInferAttentionScoreV5GetMaxWorkspaceSize)(
          p.query, p.key, p.value, p.pse, p.mask, p.lengths, p.lengths_kv, p.deq1, p.quant1, p.deq2, p.quant2,
          p.offset2, p.antiquant_scale, p.antiquant_offset, p.block_table, p.query_padding, p.kv_padding, p.key_scale,
          p.key_offset, p.value_scale, p.value_offset, p.key_prefix, p.value_prefix, p.prefix_length, p.query_rope,
          p.key_rope, p.rope_scale, p.query_scale, p.sink, p.q_start, p.kv_start, p.heads, p.scale, p.pre, p.next,
          layout, p.heads_kv, p.sparse_mode, p.inner_precise, p.block_size, p.antiquant_mode, p.lse_flag, p.key_mode,
          p.value_mode, p.query_mode, p.pse_type, p.out, p.lse, size, executor);
  }
  return ACLNN_ERR_INNER;
}

aclnnStatus Execute(InferVersion version, void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  switch (version) {
    case InferVersion::kV1: return aclnnFusedInferAttentionScore(workspace, size, executor, stream);
    case InferVersion::kV2:
    case InferVersion::kV2Max: return aclnnFusedInferAttentionScoreV2(workspace, size, executor, stream);
    case InferVersion::kV3:
    case InferVersion::kV3Max: return aclnnFusedInferAttentionScoreV3(workspace, size, executor, stream);
    case InferVersion::kV4:
    case InferVersion::kV4Max: return aclnnFusedInferAttentionScoreV4(workspace, size, executor, stream);
    case InferVersion::kV5:
    case InferVersion::kV5Max: return aclnnFusedInferAttentionScoreV5(workspace, size, executor, stream);
  }
  return ACLNN_ERR_INNER;
}

InferFace::InferFace(const InferAttentionArgs& args, const InferAttentionOptions& options) {
  p.query = handles_.Tensor(args.q);
  p.key = List(args.k);
  p.value = List(args.v);
  p.pse = handles_.Tensor(args.pse);
  p.mask = handles_.Tensor(args.dense_mask);
  const auto array = [this](std::span<const int64_t> values, std::span<const int64_t> others) -> const aclIntArray* {
    if (values.empty()) values = others;
    return values.empty() ? nullptr : handles_.Array({values.begin(), values.end()});
  };
  p.lengths = array(args.lengths_q, args.cu_q);
  p.lengths_kv = array(args.lengths_kv, args.cu_kv);
  p.deq1 = handles_.Tensor(args.deq_scale1);
  p.quant1 = handles_.Tensor(args.quant_scale1);
  p.deq2 = handles_.Tensor(args.deq_scale2);
  p.antiquant_scale = handles_.Tensor(args.antiquant_scale);
  p.antiquant_offset = handles_.Tensor(args.antiquant_offset);
  p.antiquant_mode = options.antiquant == Antiquant::kPerToken ? 1 : 0;
  p.quant2 = handles_.Tensor(args.quant_scale2);
  p.offset2 = handles_.Tensor(args.quant_offset2);
  p.block_table = handles_.Tensor(args.block_table);
  p.query_padding = handles_.Tensor(args.q_padding);
  p.kv_padding = handles_.Tensor(args.kv_padding);
  p.key_prefix = handles_.Tensor(args.k_prefix);
  p.value_prefix = handles_.Tensor(args.v_prefix);
  p.prefix_length = array(args.length_prefix, {});
  p.query_rope = handles_.Tensor(args.q_rope);
  if (!args.k_rope.empty()) p.key_rope = handles_.Tensor(args.k_rope[0]);
  p.sink = handles_.Tensor(args.sink);
  p.heads = options.heads;
  p.heads_kv = options.heads_kv;
  p.scale = static_cast<double>(options.scale.value_or(1));
  p.layout = Name(options.layout);
  p.sparse_mode = options.sparse_mode;
  if (options.pre != Mask::kUnlimited) p.pre = options.pre;
  if (options.next != Mask::kUnlimited) p.next = options.next;
  p.block_size = options.block_size;
  p.out = handles_.Tensor(args.out);
  p.lse = handles_.Tensor(args.lse);
  p.lse_flag = p.lse != nullptr;
}

InferFace::~InferFace() {
  for (const aclTensorList* list : lists_) aclDestroyTensorList(list);
}

const aclTensorList* InferFace::List(std::span<const TensorView> views, aclFormat format) {
  std::vector<const aclTensor*> tensors;
  for (const TensorView& view : views) {
    const auto rank = static_cast<uint64_t>(view.shape.rank());
    const int64_t* stride = view.stride.empty() ? nullptr : view.stride.begin();
    tensors.push_back(aclCreateTensor(view.shape.begin(), rank, AclTypeOf(view.dtype), stride, 0, format,
                                      view.shape.begin(), rank, const_cast<void*>(view.data)));
  }
  lists_.push_back(aclCreateTensorList(tensors.data(), tensors.size()));
  return lists_.back();
}

}  // namespace fa::test
