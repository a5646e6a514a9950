// fa run shared-kv, shared-kv-backward: reads the inputs from files and writes the outputs to files.

#include <utility>

#include "commands.h"
#include "commands/run/sparse_command.h"
#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"

namespace fa::tool {
namespace {

using SharedForward = SharedKvArgs;
using SharedBackward = SharedKvGradArgs;

// Returns the inputs that both commands read.
template <typename Args>
std::vector<SparseInput<Args>> SharedInputs() {
  return {
      {"--query", &Args::q, "Queries [B,S1,N,D]; TND [T,N,D]"},
      {"--ori-kv", &Args::ori_kv, "Original keys, which are values too, [B,S2,1,D]; TND [T,1,D]", FileUse::kOptional},
      {"--cmp-kv", &Args::cmp_kv, "Compressed keys, likewise", FileUse::kOptional},
      {"--ori-indices", &Args::ori_indices, "int32 or int64 [B,S1,1,K], TND [T,1,K]: up to the first -1",
       FileUse::kOptional},
      {"--cmp-indices", &Args::cmp_indices, "Lists of compressed keys, likewise", FileUse::kOptional},
      {"--ori-topk-length", &Args::ori_topk_length, "int32 [B,S1,1]: entries of a list that are read",
       FileUse::kOptional},
      {"--cmp-topk-length", &Args::cmp_topk_length, "Likewise", FileUse::kOptional},
      {"--sink", &Args::sink, "float32 [N]: a virtual key of that score and value 0", FileUse::kOptional},
  };
}

}  // namespace

void AddRunSharedKv(CLI::App& run) {
  std::vector<SparseInput<SharedForward>> inputs = SharedInputs<SharedForward>();
  inputs.push_back({"--ori-block-table", &SharedForward::ori_block_table,
                    "int32 [B,n]: the pages [block size,1,D] of the original keys", FileUse::kOptional});
  inputs.push_back(
      {"--cmp-block-table", &SharedForward::cmp_block_table, "Likewise, of the compressed keys", FileUse::kOptional});
  AddSparseCommand<SharedForward, SharedKvOptions>(
      run, {.name = "shared-kv",
            .text = "Attention over original and compressed keys in one softmax",
            .plan = PlanSharedKvAttention,
            .inputs = std::move(inputs),
            .outputs = {{"--out", &SharedForward::out, "Output, in the layout's own shape", FileUse::kNeeded,
                         [](const auto& call) { return call.args.q; }},
                        {"--lse", &SharedForward::lse, "Log of the sum of exp(score), float32 [B,1,S1,N], TND [1,T,N]",
                         FileUse::kOptional, [](const auto& call) { return call.Statistics(); }}},
            .flags = {AddScaleFlag, AddIndexFlags, AddSharedKvRowFlags}});
}

void AddRunSharedKvBackward(CLI::App& run) {
  std::vector<SparseInput<SharedBackward>> inputs = SharedInputs<SharedBackward>();
  inputs.push_back({"--dout", &SharedBackward::d_out, "Gradient of the output", FileUse::kOptional});
  inputs.push_back({"--out", &SharedBackward::out, "The forward's output", FileUse::kOptional});
  inputs.push_back({"--lse", &SharedBackward::lse, "The forward's lse, float32 [B,1,S1,N], TND [1,T,N]"});
  const auto norm_of = [](TensorView SharedBackward::*list, TensorView SharedBackward::*keys) {
    return [list, keys](const SparseShapes<SharedBackward>& call) {
      TensorView view = call.args.*list;
      view.dtype = DType::kF32;
      const Dims& shape = (call.args.*keys).shape;
      const int rank = shape.rank();
      return view.shape.empty() && rank > 2 ? call.PerToken(DType::kF32, {1, shape[rank - 3]}) : view;
    };
  };
  AddSparseCommand<SharedBackward, SharedKvOptions>(
      run, {.name = "shared-kv-backward",
            .text = "Gradients of shared-kv; without --dq the L1 norms alone",
            .plan = PlanSharedKvAttentionGrad,
            .inputs = std::move(inputs),
            .outputs = {{"--dq", &SharedBackward::dq, "Gradient of the queries", FileUse::kOptional,
                         [](const auto& call) { return call.args.q; }},
                        {"--d-ori-kv", &SharedBackward::d_ori_kv, "Gradient of --ori-kv", FileUse::kOptional,
                         [](const auto& call) { return call.args.ori_kv; }},
                        {"--d-cmp-kv", &SharedBackward::d_cmp_kv, "Gradient of --cmp-kv", FileUse::kOptional,
                         [](const auto& call) { return call.args.cmp_kv; }},
                        {"--dsink", &SharedBackward::dsink, "Gradient of --sink, float32 [N]", FileUse::kOptional,
                         [](const auto& call) { return call.args.sink; }},
                        {"--ori-l1-norm", &SharedBackward::ori_l1_norm,
                         "Mean over the heads of each entry's probability, float32 in the shape of --ori-indices, or "
                         "[B,S1,1,S2] without lists",
                         FileUse::kOptional, norm_of(&SharedBackward::ori_indices, &SharedBackward::ori_kv)},
                        {"--cmp-l1-norm", &SharedBackward::cmp_l1_norm, "Likewise, of --cmp-indices",
                         FileUse::kOptional, norm_of(&SharedBackward::cmp_indices, &SharedBackward::cmp_kv)}},
            .flags = {AddScaleFlag, AddIndexFlags}});
}

}  // namespace fa::tool
