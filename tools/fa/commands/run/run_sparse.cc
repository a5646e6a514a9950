// fa run sparse-forward, sparse-backward: reads the inputs from files and writes the outputs to files.

#include <utility>

#include "commands.h"
#include "commands/run/sparse_command.h"
#include "fa/sparse_flash_attention.h"
#include "fa/sparse_flash_attention_grad.h"

namespace fa::tool {
namespace {

using Forward = SparseAttentionArgs;
using Backward = SparseAttentionGradArgs;

// Returns a view with the output's shape. If there is no tensor of values, all columns of the keys are the values,
// except rope columns of quantised rows.
TensorView Out(const SparseShapes<Forward>& call) {
  if (call.flags.tile) {
    return call.PerToken(call.args.q.dtype, {call.query.heads, call.query.d - call.flags.rope_columns});
  }
  const TensorView& values = call.args.v.data != nullptr ? call.args.v : call.args.k;
  const int last = values.shape.rank() - 1;
  return call.PerToken(call.args.q.dtype, {call.query.heads, last < 0 ? 0 : values.shape[last]});
}

TensorView HeadMean(const SparseShapes<Forward>& call) {
  const Dims& indices = call.args.sparse_indices.shape;
  return call.PerToken(DType::kF32, {indices.rank() == 0 ? 0 : indices[indices.rank() - 1]});
}

// Returns the inputs that both commands read.
template <typename Args>
std::vector<SparseInput<Args>> Inputs() {
  return {
      {"--query", &Args::q, "Queries [B,S1,N,D]; TND [T,N,D]"},
      {"--key", &Args::k, "Keys [B,S2,1,D]; TND [T,1,D]"},
      {"--value", &Args::v, "Values, likewise; default: the keys", FileUse::kOptional},
      {"--query-rope", &Args::q_rope, "Second part of the query heads", FileUse::kOptional},
      {"--key-rope", &Args::k_rope, "Second part of the keys", FileUse::kOptional},
      {"--sink", &Args::sink, "float32 [N]: a virtual key of that score and value 0", FileUse::kOptional},
      {"--sparse-indices", &Args::sparse_indices, "int32 or int64 [B,S1,1,K], TND [T,1,K]: up to the first -1"},
  };
}

}  // namespace

void AddRunSparseForward(CLI::App& run) {
  std::vector<SparseInput<Forward>> inputs = Inputs<Forward>();
  inputs.push_back({"--block-table", &Forward::block_table,
                    "int32 [B,n]: the pages [block size,1,D] of each batch element's keys", FileUse::kOptional});
  const auto statistics = [](const SparseShapes<Forward>& call) { return call.Statistics(); };
  AddSparseCommand<Forward, SparseAttentionOptions>(
      run, {.name = "sparse-forward",
            .text = "Attention of every query to the keys of its own list",
            .plan = PlanSparseFlashAttention,
            .inputs = std::move(inputs),
            .outputs = {{"--out", &Forward::out, "Output, in the layout's own shape", FileUse::kNeeded, Out},
                        {"--softmax-max", &Forward::softmax_max, "Row maximum, float32 [B,1,S1,N], TND [1,T,N]",
                         FileUse::kOptional, statistics},
                        {"--softmax-sum", &Forward::softmax_sum, "Row sum of exp(score - max), likewise",
                         FileUse::kOptional, statistics},
                        {"--p-head-mean", &Forward::p_head_mean,
                         "Mean over the heads of each index's probability, float32 [B,S1,K], TND [T,K]",
                         FileUse::kOptional, HeadMean}},
            .flags = {AddScaleFlag, AddBlockSizeFlag, AddIndexFlags, AddRowFormatFlags}});
}

void AddRunSparseBackward(CLI::App& run) {
  std::vector<SparseInput<Backward>> inputs = Inputs<Backward>();
  for (const SparseInput<Backward>& input :
       {SparseInput<Backward>{"--dout", &Backward::d_out, "Gradient of the output"},
        {"--out", &Backward::out, "The forward's output"},
        {"--softmax-max", &Backward::softmax_max, "The forward's row maximum, float32 [B,1,S1,N], TND [1,T,N]"},
        {"--softmax-sum", &Backward::softmax_sum, "The forward's row sum, likewise"}}) {
    inputs.push_back(input);
  }
  AddSparseCommand<Backward, SparseAttentionOptions>(
      run, {.name = "sparse-backward",
            .text = "Gradients of sparse-forward",
            .plan = PlanSparseFlashAttentionGrad,
            .inputs = std::move(inputs),
            .outputs = {{"--dq", &Backward::dq, "Gradient of the queries", FileUse::kNeeded,
                         [](const auto& call) { return call.args.q; }},
                        {"--dk", &Backward::dk, "Gradient of the keys; without --value, of the values too",
                         FileUse::kNeeded, [](const auto& call) { return call.args.k; }},
                        {"--dv", &Backward::dv, "Gradient of the values, if --value is given", FileUse::kOptional,
                         [](const auto& call) { return call.args.v; }},
                        {"--dq-rope", &Backward::dq_rope, "Gradient of --query-rope", FileUse::kOptional,
                         [](const auto& call) { return call.args.q_rope; }},
                        {"--dk-rope", &Backward::dk_rope, "Gradient of --key-rope", FileUse::kOptional,
                         [](const auto& call) { return call.args.k_rope; }},
                        {"--dsink", &Backward::dsink, "Gradient of --sink, float32 [N]", FileUse::kOptional,
                         [](const auto& call) { return call.args.sink; }}},
            .flags = {AddScaleFlag, AddBlockSizeFlag, AddIndexFlags}});
}

}  // namespace fa::tool
