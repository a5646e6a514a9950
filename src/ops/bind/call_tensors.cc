#include "ops/bind/call_tensors.h"

#include <algorithm>

namespace fa::ops {
namespace {

CallTensor Input(const char* name, const TensorView& tensor) {
  return {name, tensor.data, tensor.dtype, &tensor.shape, &tensor.stride, /*required=*/true, /*output=*/false};
}

CallTensor Output(const char* name, const MutableTensorView& tensor) {
  return {name, tensor.data, tensor.dtype, &tensor.shape, &tensor.stride, /*required=*/true, /*output=*/true};
}

CallTensor Optional(CallTensor tensor) {
  tensor.required = false;
  return tensor;
}

/// Joins the tensors of the parts of a call, one part after the other.
template <size_t... kSizes>
std::array<CallTensor, (kSizes + ...)> Joined(const std::array<CallTensor, kSizes>&... parts) {
  std::array<CallTensor, (kSizes + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

/// The tensors that every attention multiplies; the value may be optional.
template <typename Args>
auto AttentionOperands(const Args& args, const CallTensor& value) {
  return std::array{Input("q", args.q), Input("k", args.k), value, Optional(Input("q_rope", args.q_rope)),
                    Optional(Input("k_rope", args.k_rope))};
}

/// The further tensors that the gradients of every attention read and write.
template <typename Args>
auto AttentionGradients(const Args& args, const CallTensor& dv) {
  return std::array{
      Input("out", args.out),
      Input("d_out", args.d_out),
      Input("softmax_max", args.softmax_max),
      Input("softmax_sum", args.softmax_sum),
      Output("dq", args.dq),
      Output("dk", args.dk),
      dv,
      Optional(Output("dq_rope", args.dq_rope)),
      Optional(Output("dk_rope", args.dk_rope)),
  };
}

/// The inputs that a dense call and its gradients share.
template <typename Args>
auto DenseInputs(const Args& args) {
  return Joined(AttentionOperands(args, Input("v", args.v)), std::array{
                                                                 Optional(Input("pse", args.pse)),
                                                                 Optional(Input("dense_mask", args.dense_mask)),
                                                                 Optional(Input("drop_mask", args.drop_mask)),
                                                                 Optional(Input("sink", args.sink)),
                                                             });
}

/// The tensors of a sparse attention call.
template <typename Args>
auto SparseInputs(const Args& args) {
  return Joined(AttentionOperands(args, Optional(Input("v", args.v))),
                std::array{Input("sparse_indices", args.sparse_indices), Optional(Input("sink", args.sink))});
}

/// The inputs of the indexer in a loss or in its statistics.
template <typename Args>
auto IndexerInputs(const Args& args) {
  return std::array{Input("q_index", args.q_index), Input("k_index", args.k_index), Input("weights", args.weights)};
}
template <typename Args>
auto LossOutputs(const Args& args) {
  return std::array{Output("dq_index", args.dq_index), Output("dk_index", args.dk_index),
                    Output("dweights", args.dweights), Output("loss", args.loss)};
}

}  // namespace

CallTensors TensorsOf(const AttentionArgs& args) {
  return Joined(DenseInputs(args), std::array{
                                       Output("out", args.out),
                                       Optional(Output("softmax_max", args.softmax_max)),
                                       Optional(Output("softmax_sum", args.softmax_sum)),
                                       Optional(Output("lse", args.lse)),
                                   });
}

CallTensors TensorsOf(const AttentionGradArgs& args) {
  return Joined(DenseInputs(args), AttentionGradients(args, Output("dv", args.dv)),
                std::array{
                    Optional(Output("dpse", args.dpse)),
                    Optional(Output("dslopes", args.dslopes)),
                    Optional(Output("dsink", args.dsink)),
                });
}

CallTensor KeyTensor(const char* name, const TensorView& tensor) { return Input(name, tensor); }

CallTensors TensorsOf(const DecodeAttentionArgs& args) {
  return std::array{
      Input("q", args.q),
      Optional(Input("q_rope", args.q_rope)),
      Optional(Input("block_table", args.block_table)),
      Optional(Input("antiquant_scale", args.antiquant_scale)),
      Optional(Input("antiquant_offset", args.antiquant_offset)),
      Optional(Input("deq_scale1", args.deq_scale1)),
      Optional(Input("quant_scale1", args.quant_scale1)),
      Optional(Input("deq_scale2", args.deq_scale2)),
      Optional(Input("quant_scale2", args.quant_scale2)),
      Optional(Input("quant_offset2", args.quant_offset2)),
      Optional(Input("pse", args.pse)),
      Optional(Input("dense_mask", args.dense_mask)),
      Optional(Input("sink", args.sink)),
      Output("out", args.out),
      Optional(Output("lse", args.lse)),
  };
}

CallTensors TensorsOf(const PromptAttentionArgs& args) {
  return std::array{
      Input("q", args.q),
      Input("k", args.k),
      Input("v", args.v),
      Optional(Input("q_rope", args.q_rope)),
      Optional(Input("k_rope", args.k_rope)),
      Optional(Input("pse", args.pse)),
      Optional(Input("dense_mask", args.dense_mask)),
      Optional(Input("sink", args.sink)),
      Optional(Input("deq_scale1", args.deq_scale1)),
      Optional(Input("quant_scale1", args.quant_scale1)),
      Optional(Input("deq_scale2", args.deq_scale2)),
      Optional(Input("quant_scale2", args.quant_scale2)),
      Optional(Input("quant_offset2", args.quant_offset2)),
      Output("out", args.out),
      Optional(Output("softmax_max", args.softmax_max)),
      Optional(Output("softmax_sum", args.softmax_sum)),
      Optional(Output("lse", args.lse)),
  };
}

CallTensors TensorsOf(const LightningIndexerArgs& args) {
  return std::array{
      Input("q", args.q),
      Input("k", args.k),
      Input("weights", args.weights),
      Optional(Input("block_table", args.block_table)),
      Output("sparse_indices", args.sparse_indices),
      Optional(Output("sparse_values", args.sparse_values)),
  };
}

CallTensors TensorsOf(const LightningIndexerGradArgs& args) {
  return std::array{
      Input("q", args.q),
      Input("k", args.k),
      Input("weights", args.weights),
      Input("sparse_indices", args.sparse_indices),
      Input("d_values", args.d_values),
      Output("dq", args.dq),
      Output("dk", args.dk),
      Output("dweights", args.dweights),
  };
}

CallTensors TensorsOf(const DenseIndexerLseArgs& args) {
  return Joined(IndexerInputs(args), std::array{Output("softmax_max_index", args.softmax_max_index),
                                                Output("softmax_sum_index", args.softmax_sum_index)});
}

CallTensors TensorsOf(const SparseIndexerLossArgs& args) {
  // With p_head_mean the attention's tensors are not read. They count as absent.
  const auto of_attention = [&](const char* name, const TensorView& tensor) {
    CallTensor input = Input(name, tensor);
    if (args.p_head_mean.data == nullptr) return input;
    input.data = nullptr;
    return Optional(input);
  };
  return Joined(
      std::array{of_attention("q", args.q), of_attention("k", args.k), Optional(of_attention("q_rope", args.q_rope)),
                 Optional(of_attention("k_rope", args.k_rope))},
      IndexerInputs(args),
      std::array{Input("sparse_indices", args.sparse_indices), of_attention("softmax_max", args.softmax_max),
                 of_attention("softmax_sum", args.softmax_sum), Optional(Input("p_head_mean", args.p_head_mean))},
      LossOutputs(args));
}

CallTensors TensorsOf(const DenseIndexerLossArgs& args) {
  return Joined(std::array{Input("q", args.q), Input("k", args.k), Optional(Input("q_rope", args.q_rope)),
                           Optional(Input("k_rope", args.k_rope))},
                IndexerInputs(args),
                std::array{Input("softmax_max", args.softmax_max), Input("softmax_sum", args.softmax_sum),
                           Input("softmax_max_index", args.softmax_max_index),
                           Input("softmax_sum_index", args.softmax_sum_index)},
                LossOutputs(args));
}

CallTensors TensorsOf(const SparseAttentionArgs& args) {
  return Joined(SparseInputs(args), std::array{
                                        Optional(Input("block_table", args.block_table)),
                                        Output("out", args.out),
                                        Optional(Output("softmax_max", args.softmax_max)),
                                        Optional(Output("softmax_sum", args.softmax_sum)),
                                        Optional(Output("p_head_mean", args.p_head_mean)),
                                    });
}

CallTensors TensorsOf(const SparseAttentionGradArgs& args) {
  return Joined(SparseInputs(args), AttentionGradients(args, Optional(Output("dv", args.dv))),
                std::array{Optional(Output("dsink", args.dsink))});
}

CallTensors TensorsOf(const MergeArgs& args) {
  return std::array{
      Input("prev_out", args.prev_out),
      Input("prev_max", args.prev_max),
      Input("prev_sum", args.prev_sum),
      Input("cur_out", args.cur_out),
      Input("cur_max", args.cur_max),
      Input("cur_sum", args.cur_sum),
      Output("out", args.out),
      Output("softmax_max", args.softmax_max),
      Output("softmax_sum", args.softmax_sum),
  };
}

}  // namespace fa::ops
