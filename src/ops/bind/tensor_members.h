#ifndef FA_OPS_TENSOR_MEMBERS_H_
#define FA_OPS_TENSOR_MEMBERS_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "fa/operators.h"
#include "fa/tensor.h"

namespace fa::ops {

/// A member of an operator's arguments that holds a tensor. If the tensor is not `required`, null data means that the
/// tensor is absent.
template <typename Args>
struct TensorMember {
  const char* name = nullptr;                 ///< the tensor's name in errors
  TensorView Args::*input = nullptr;          ///< the member if the tensor is an input, else null
  MutableTensorView Args::*output = nullptr;  ///< the member if the tensor is an output, else null
  bool required = false;
};

#define FA_REQUIRED_INPUT(member) \
  TensorMember<Args> { .name = #member, .input = &Args::member, .required = true }
#define FA_INPUT(member) \
  TensorMember<Args> { .name = #member, .input = &Args::member }
#define FA_REQUIRED_OUTPUT(member) \
  TensorMember<Args> { .name = #member, .output = &Args::member, .required = true }
#define FA_OUTPUT(member) \
  TensorMember<Args> { .name = #member, .output = &Args::member }

/// Joins lists of members into one list, one after the other.
template <typename T, size_t... kSizes>
constexpr std::array<T, (kSizes + ...)> Joined(const std::array<T, kSizes>&... parts) {
  std::array<T, (kSizes + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

/// The inputs that the dense forward and backward share.
template <typename Args>
inline constexpr std::array kDenseInputs = {
    FA_REQUIRED_INPUT(q), FA_REQUIRED_INPUT(k), FA_REQUIRED_INPUT(v), FA_INPUT(q_rope), FA_INPUT(k_rope),
    FA_INPUT(pse),        FA_INPUT(dense_mask), FA_INPUT(drop_mask),  FA_INPUT(sink),
};

/// The inputs that the sparse forward and backward share.
template <typename Args>
inline constexpr std::array kSparseInputs = {
    FA_REQUIRED_INPUT(q), FA_REQUIRED_INPUT(k), FA_INPUT(v),
    FA_INPUT(q_rope),     FA_INPUT(k_rope),     FA_REQUIRED_INPUT(sparse_indices),
    FA_INPUT(sink),
};

/// The inputs that only a backward has, and the gradients that it writes, without dv.
template <typename Args>
inline constexpr std::array kGradientInputs = {
    FA_REQUIRED_INPUT(out),         FA_REQUIRED_INPUT(d_out), FA_REQUIRED_INPUT(softmax_max),
    FA_REQUIRED_INPUT(softmax_sum), FA_REQUIRED_OUTPUT(dq),   FA_REQUIRED_OUTPUT(dk),
};

/// The indexer's inputs, for a loss and for the operator that computes the statistics of scores.
template <typename Args>
inline constexpr std::array kIndexerInputs = {FA_REQUIRED_INPUT(q_index), FA_REQUIRED_INPUT(k_index),
                                              FA_REQUIRED_INPUT(weights)};
template <typename Args>
inline constexpr std::array kLossOutputs = {FA_REQUIRED_OUTPUT(dq_index), FA_REQUIRED_OUTPUT(dk_index),
                                            FA_REQUIRED_OUTPUT(dweights), FA_REQUIRED_OUTPUT(loss)};

/// Lists the tensors of an operator, inputs before outputs. Lists of tensors are left out.
template <typename Args>
constexpr auto TensorMembers() = delete;

template <>
constexpr auto TensorMembers<AttentionArgs>() {
  using Args = AttentionArgs;
  return Joined(kDenseInputs<Args>,
                std::array{FA_REQUIRED_OUTPUT(out), FA_OUTPUT(softmax_max), FA_OUTPUT(softmax_sum), FA_OUTPUT(lse)});
}

template <>
constexpr auto TensorMembers<AttentionGradArgs>() {
  using Args = AttentionGradArgs;
  return Joined(kDenseInputs<Args>, kGradientInputs<Args>,
                std::array{FA_REQUIRED_OUTPUT(dv), FA_OUTPUT(dq_rope), FA_OUTPUT(dk_rope), FA_OUTPUT(dpse),
                           FA_OUTPUT(dslopes), FA_OUTPUT(dsink)});
}

template <>
constexpr auto TensorMembers<MergeArgs>() {
  using Args = MergeArgs;
  return std::array{FA_REQUIRED_INPUT(prev_out), FA_REQUIRED_INPUT(prev_max),     FA_REQUIRED_INPUT(prev_sum),
                    FA_REQUIRED_INPUT(cur_out),  FA_REQUIRED_INPUT(cur_max),      FA_REQUIRED_INPUT(cur_sum),
                    FA_REQUIRED_OUTPUT(out),     FA_REQUIRED_OUTPUT(softmax_max), FA_REQUIRED_OUTPUT(softmax_sum)};
}

/// The inputs of a decode, which fused inference has too.
template <typename Args>
inline constexpr std::array kDecodeInputs = {
    FA_REQUIRED_INPUT(q),
    FA_INPUT(q_rope),
    FA_INPUT(block_table),
    FA_INPUT(k_scale),
    FA_INPUT(v_scale),
    FA_INPUT(k_offset),
    FA_INPUT(v_offset),
    FA_INPUT(antiquant_scale),
    FA_INPUT(antiquant_offset),
    FA_INPUT(deq_scale1),
    FA_INPUT(quant_scale1),
    FA_INPUT(deq_scale2),
    FA_INPUT(quant_scale2),
    FA_INPUT(quant_offset2),
    FA_INPUT(pse),
    FA_INPUT(dense_mask),
    FA_INPUT(sink),
};

template <>
constexpr auto TensorMembers<DecodeAttentionArgs>() {
  using Args = DecodeAttentionArgs;
  return Joined(kDecodeInputs<Args>, std::array{FA_REQUIRED_OUTPUT(out), FA_OUTPUT(lse)});
}

template <>
constexpr auto TensorMembers<InferAttentionArgs>() {
  using Args = InferAttentionArgs;
  return Joined(kDecodeInputs<Args>,
                std::array{FA_INPUT(q_scale), FA_INPUT(q_padding), FA_INPUT(kv_padding), FA_INPUT(k_prefix),
                           FA_INPUT(v_prefix), FA_REQUIRED_OUTPUT(out), FA_OUTPUT(lse)});
}

template <>
constexpr auto TensorMembers<PromptAttentionArgs>() {
  using Args = PromptAttentionArgs;
  return std::array{FA_REQUIRED_INPUT(q),    FA_REQUIRED_INPUT(k),    FA_REQUIRED_INPUT(v),   FA_INPUT(q_rope),
                    FA_INPUT(k_rope),        FA_INPUT(pse),           FA_INPUT(dense_mask),   FA_INPUT(sink),
                    FA_INPUT(deq_scale1),    FA_INPUT(quant_scale1),  FA_INPUT(deq_scale2),   FA_INPUT(quant_scale2),
                    FA_INPUT(quant_offset2), FA_REQUIRED_OUTPUT(out), FA_OUTPUT(softmax_max), FA_OUTPUT(softmax_sum),
                    FA_OUTPUT(lse)};
}

template <>
constexpr auto TensorMembers<SparseAttentionArgs>() {
  using Args = SparseAttentionArgs;
  return Joined(kSparseInputs<Args>, std::array{FA_INPUT(block_table), FA_REQUIRED_OUTPUT(out), FA_OUTPUT(softmax_max),
                                                FA_OUTPUT(softmax_sum), FA_OUTPUT(p_head_mean)});
}

template <>
constexpr auto TensorMembers<SparseAttentionGradArgs>() {
  using Args = SparseAttentionGradArgs;
  return Joined(kSparseInputs<Args>, kGradientInputs<Args>,
                std::array{FA_OUTPUT(dv), FA_OUTPUT(dq_rope), FA_OUTPUT(dk_rope), FA_OUTPUT(dsink)});
}

/// The inputs that forward and backward of attention over original and compressed keys share.
template <typename Args>
inline constexpr std::array kSharedKvInputs = {
    FA_REQUIRED_INPUT(q),  FA_INPUT(ori_kv),          FA_INPUT(cmp_kv),          FA_INPUT(ori_indices),
    FA_INPUT(cmp_indices), FA_INPUT(ori_topk_length), FA_INPUT(cmp_topk_length), FA_INPUT(sink),
};

template <>
constexpr auto TensorMembers<SharedKvArgs>() {
  using Args = SharedKvArgs;
  return Joined(kSharedKvInputs<Args>, std::array{FA_INPUT(ori_block_table), FA_INPUT(cmp_block_table),
                                                  FA_REQUIRED_OUTPUT(out), FA_OUTPUT(lse)});
}

template <>
constexpr auto TensorMembers<SharedKvGradArgs>() {
  using Args = SharedKvGradArgs;
  return Joined(kSharedKvInputs<Args>,
                std::array{FA_INPUT(out), FA_INPUT(d_out), FA_REQUIRED_INPUT(lse), FA_OUTPUT(dq), FA_OUTPUT(d_ori_kv),
                           FA_OUTPUT(d_cmp_kv), FA_OUTPUT(dsink), FA_OUTPUT(ori_l1_norm), FA_OUTPUT(cmp_l1_norm)});
}

template <>
constexpr auto TensorMembers<LightningIndexerArgs>() {
  using Args = LightningIndexerArgs;
  return std::array{
      FA_REQUIRED_INPUT(q),    FA_REQUIRED_INPUT(k),  FA_REQUIRED_INPUT(weights), FA_INPUT(q_scale),
      FA_INPUT(k_scale),       FA_INPUT(block_table), FA_INPUT(index_offset),     FA_REQUIRED_OUTPUT(sparse_indices),
      FA_OUTPUT(sparse_values)};
}

template <>
constexpr auto TensorMembers<LightningIndexerGradArgs>() {
  using Args = LightningIndexerGradArgs;
  return std::array{FA_REQUIRED_INPUT(q),        FA_REQUIRED_INPUT(k),
                    FA_REQUIRED_INPUT(weights),  FA_REQUIRED_INPUT(sparse_indices),
                    FA_REQUIRED_INPUT(d_values), FA_REQUIRED_OUTPUT(dq),
                    FA_REQUIRED_OUTPUT(dk),      FA_REQUIRED_OUTPUT(dweights)};
}

template <>
constexpr auto TensorMembers<DenseIndexerLseArgs>() {
  using Args = DenseIndexerLseArgs;
  return Joined(kIndexerInputs<Args>,
                std::array{FA_REQUIRED_OUTPUT(softmax_max_index), FA_REQUIRED_OUTPUT(softmax_sum_index)});
}

// Without p_head_mean, a call also needs softmax_max and softmax_sum; with it, the attention's tensors are not read.
template <>
constexpr auto TensorMembers<SparseIndexerLossArgs>() {
  using Args = SparseIndexerLossArgs;
  return Joined(std::array{FA_REQUIRED_INPUT(q), FA_REQUIRED_INPUT(k), FA_INPUT(q_rope), FA_INPUT(k_rope)},
                kIndexerInputs<Args>,
                std::array{FA_REQUIRED_INPUT(sparse_indices), FA_REQUIRED_INPUT(softmax_max),
                           FA_REQUIRED_INPUT(softmax_sum), FA_INPUT(sink), FA_INPUT(p_head_mean)},
                kLossOutputs<Args>, std::array{FA_OUTPUT(softmax_index)});
}

template <>
constexpr auto TensorMembers<DenseIndexerLossArgs>() {
  using Args = DenseIndexerLossArgs;
  return Joined(std::array{FA_REQUIRED_INPUT(q), FA_REQUIRED_INPUT(k), FA_INPUT(q_rope), FA_INPUT(k_rope)},
                kIndexerInputs<Args>,
                std::array{FA_REQUIRED_INPUT(softmax_max), FA_REQUIRED_INPUT(softmax_sum),
                           FA_REQUIRED_INPUT(softmax_max_index), FA_REQUIRED_INPUT(softmax_sum_index)},
                kLossOutputs<Args>);
}

template <>
constexpr auto TensorMembers<IndexerKLLossArgs>() {
  using Args = IndexerKLLossArgs;
  return std::array{FA_REQUIRED_INPUT(target), FA_REQUIRED_INPUT(probabilities), FA_REQUIRED_OUTPUT(loss)};
}

template <>
constexpr auto TensorMembers<MsaIndexScoreArgs>() {
  using Args = MsaIndexScoreArgs;
  return std::array{FA_REQUIRED_INPUT(q), FA_REQUIRED_INPUT(k), FA_INPUT(k_scale), FA_INPUT(block_table),
                    FA_REQUIRED_OUTPUT(score)};
}

// The lists lse and local_out are left out.
template <>
constexpr auto TensorMembers<MergeByLseArgs>() {
  using Args = MergeByLseArgs;
  return std::array{FA_REQUIRED_OUTPUT(out), FA_OUTPUT(lse_out)};
}

template <>
constexpr auto TensorMembers<ScatterRowsArgs>() {
  using Args = ScatterRowsArgs;
  return std::array{FA_REQUIRED_INPUT(key),        FA_INPUT(value),        FA_REQUIRED_INPUT(slot_mapping),
                    FA_INPUT(source_rows),         FA_INPUT(key_scale),    FA_INPUT(value_scale),
                    FA_REQUIRED_OUTPUT(key_cache), FA_OUTPUT(value_cache), FA_OUTPUT(key_scale_cache),
                    FA_OUTPUT(value_scale_cache)};
}

template <>
constexpr auto TensorMembers<GatherRowsArgs>() {
  using Args = GatherRowsArgs;
  return std::array{FA_REQUIRED_INPUT(key_cache), FA_REQUIRED_INPUT(value_cache), FA_REQUIRED_INPUT(block_table),
                    FA_REQUIRED_INPUT(seq_lens),  FA_INPUT(seq_offset),           FA_REQUIRED_OUTPUT(key),
                    FA_REQUIRED_OUTPUT(value)};
}

#undef FA_REQUIRED_INPUT
#undef FA_INPUT
#undef FA_REQUIRED_OUTPUT
#undef FA_OUTPUT

}  // namespace fa::ops

#endif  // FA_OPS_TENSOR_MEMBERS_H_
