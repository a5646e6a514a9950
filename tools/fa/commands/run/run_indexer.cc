// fa run indexer, indexer-backward, indexer-kl-loss, dense-indexer-lse, dense-indexer-kl-loss: reads the inputs from
// files and writes the outputs to files.

#include <utility>

#include "commands.h"
#include "commands/run/sparse_command.h"
#include "fa/indexer_loss.h"
#include "fa/indexer_lse.h"
#include "fa/lightning_indexer.h"
#include "fa/lightning_indexer_grad.h"

namespace fa::tool {
namespace {

using Indexer = LightningIndexerArgs;
using Gradients = LightningIndexerGradArgs;

constexpr const char* kWeights = "Weights of the heads [B,S1,N], TND [T,N]; the query's type or float32";
constexpr const char* kIndices = "int32 or int64 [B,S1,1,K], TND [T,1,K]: up to the first -1";

/// Returns a command with the inputs, outputs and flags that both losses share. Each loss then adds its own inputs.
template <typename Loss, typename Options>
SparseCommand<Loss, Options> LossCommand(const char* name, const char* text,
                                         Result<PlanFor<Loss>> (*plan)(const Loss&, const Options&, Context*)) {
  return {.name = name,
          .text = text,
          .plan = plan,
          .inputs = {{"--query", &Loss::q, "Queries of the attention [B,S1,N,D]; TND [T,N,D]"},
                     {"--query-rope", &Loss::q_rope, "Second part of the query heads", FileUse::kOptional},
                     {"--key-rope", &Loss::k_rope, "Second part of the keys", FileUse::kOptional},
                     {"--query-index", &Loss::q_index, "Queries of the indexer [B,S1,Nidx,Didx]"},
                     {"--key-index", &Loss::k_index, "Keys of the indexer [B,S2,1,Didx]"},
                     {"--weights", &Loss::weights, kWeights}},
          .outputs = {{"--dq-index", &Loss::dq_index, "Gradient of --query-index", FileUse::kNeeded,
                       [](const auto& call) { return call.args.q_index; }},
                      {"--dk-index", &Loss::dk_index, "Gradient of --key-index", FileUse::kNeeded,
                       [](const auto& call) { return call.args.k_index; }},
                      {"--dw", &Loss::dweights, "Gradient of the weights", FileUse::kNeeded,
                       [](const auto& call) { return call.args.weights; }},
                      {"--loss", &Loss::loss, "float32, one element", FileUse::kNeeded,
                       [](const auto& /*call*/) {
                         return TensorView{nullptr, DType::kF32, {1}, {}};
                       }}},
          .flags = {AddScaleFlag, AddLossFlags}};
}

}  // namespace

void AddRunIndexer(CLI::App& run) {
  AddSparseCommand<Indexer, LightningIndexerOptions>(
      run,
      {.name = "indexer",
       .text = "The keys of the largest sum of weights max(0, query . key)",
       .plan = PlanLightningIndexer,
       .inputs = {{"--query", &Indexer::q, "Queries [B,S1,N,D]; TND [T,N,D]"},
                  {"--key", &Indexer::k, "Keys [B,S2,1,D]; TND [T,1,D]"},
                  {"--weights", &Indexer::weights, kWeights},
                  {"--query-scale", &Indexer::q_scale,
                   "Scales [B,S1,N] of queries of int8 or uint8 (e4m3); keys have their type", FileUse::kOptional},
                  {"--key-scale", &Indexer::k_scale, "Scales of these keys, [B,S2,1] or [B,S2]", FileUse::kOptional},
                  {"--index-offset", &Indexer::index_offset, "int32 [B,S1,1] or [B], added to the indices",
                   FileUse::kOptional},
                  {"--block-table", &Indexer::block_table,
                   "int32 [B,n]: the pages [block size,1,D] of each batch element's keys", FileUse::kOptional}},
       .outputs = {{"--sparse-indices", &Indexer::sparse_indices,
                    "int32 [B,S1,1,K], TND [T,1,K]: by descending score, then -1", FileUse::kNeeded,
                    [](const auto& call) {
                      return call.PerToken(DType::kI32, {1, CountOf(call.flags)});
                    }},
                   {"--sparse-values", &Indexer::sparse_values,
                    "Their scores, of the query's type, float32 with scales", FileUse::kOptional,
                    [](const auto& call) {
                      const bool scales = call.args.q_scale.data != nullptr;
                      return call.PerToken(scales ? DType::kF32 : call.args.q.dtype, {1, CountOf(call.flags)});
                    }}},
       .flags = {AddCountFlag, AddCompressionFlags}});
}

void AddRunIndexerBackward(CLI::App& run) {
  AddSparseCommand<Gradients, LightningIndexerGradOptions>(
      run, {.name = "indexer-backward",
            .text = "Gradients of the indexer's values",
            .plan = PlanLightningIndexerGrad,
            .inputs = {{"--query", &Gradients::q, "Queries [B,S1,N,D]; TND [T,N,D]"},
                       {"--key", &Gradients::k, "Keys [B,S2,1,D]; TND [T,1,D]"},
                       {"--weights", &Gradients::weights, kWeights},
                       {"--sparse-indices", &Gradients::sparse_indices, kIndices},
                       {"--dvalues", &Gradients::d_values, "Gradient of the values, [B,S1,1,K] or [B,S1,K]"}},
            .outputs = {{"--dq", &Gradients::dq, "Gradient of the queries", FileUse::kNeeded,
                         [](const auto& call) { return call.args.q; }},
                        {"--dk", &Gradients::dk, "Gradient of the keys", FileUse::kNeeded,
                         [](const auto& call) { return call.args.k; }},
                        {"--dw", &Gradients::dweights, "Gradient of the weights", FileUse::kNeeded,
                         [](const auto& call) { return call.args.weights; }}},
            .flags = {AddIndexFlags}});
}

void AddRunIndexerLoss(CLI::App& run) {
  using Loss = SparseIndexerLossArgs;
  auto command =
      LossCommand<Loss>("indexer-kl-loss", "How far the indexer is from the attention on its selection, with gradients",
                        PlanSparseLightningIndexerGradKLLoss);
  command.inputs.insert(
      command.inputs.end(),
      {{"--key", &Loss::k, "Keys of the attention [B,S2,1,D]; TND [T,1,D]"},
       {"--sparse-indices", &Loss::sparse_indices, kIndices},
       {"--softmax-max", &Loss::softmax_max, "Row maximum of sparse-forward, float32 [B,1,S1,N], TND [1,T,N]"},
       {"--softmax-sum", &Loss::softmax_sum, "Row sum of sparse-forward, same shape"},
       {"--sink", &Loss::sink, "The sinks of sparse-forward, float32 [N]", FileUse::kOptional},
       {"--p-head-mean", &Loss::p_head_mean, "Output of sparse-forward; without it the mean is computed again",
        FileUse::kOptional}});
  command.outputs.push_back({"--softmax-index", &Loss::softmax_index,
                             "Softmax of the indexer's scores on each list, float32 [B,S1,K], TND [T,K]",
                             FileUse::kOptional, [](const auto& call) {
                               const Dims& indices = call.args.sparse_indices.shape;
                               const int rank = indices.rank();
                               return call.PerToken(DType::kF32, {rank == 0 ? 0 : indices[rank - 1]});
                             }});
  command.flags.insert(command.flags.end(), {AddIndexFlags, AddCompressionFlags});
  AddSparseCommand(run, std::move(command));
}

void AddRunDenseIndexerLse(CLI::App& run) {
  using Lse = DenseIndexerLseArgs;
  AddSparseCommand<Lse, DenseIndexerLseOptions>(
      run, {.name = "dense-indexer-lse",
            .text = "Softmax statistics of the indexer's scores on every key, for dense-indexer-kl-loss",
            .plan = PlanDenseLightningIndexerSoftmaxLse,
            .inputs = {{"--query-index", &Lse::q_index, "Queries of the indexer [B,S1,Nidx,Didx]; TND [T,Nidx,Didx]"},
                       {"--key-index", &Lse::k_index, "Keys of the indexer [B,S2,1,Didx]; TND [T,1,Didx]"},
                       {"--weights", &Lse::weights, kWeights}},
            .outputs = {{"--softmax-max-index", &Lse::softmax_max_index, "Row maximum, float32 [B,1,S1], TND [1,T]",
                         FileUse::kNeeded, [](const auto& call) { return call.RowStatistics(); }},
                        {"--softmax-sum-index", &Lse::softmax_sum_index, "Row sum, same shape", FileUse::kNeeded,
                         [](const auto& call) { return call.RowStatistics(); }}},
            .flags = {}});
}

void AddRunDenseIndexerLoss(CLI::App& run) {
  using Loss = DenseIndexerLossArgs;
  auto command = LossCommand<Loss>("dense-indexer-kl-loss",
                                   "How far the indexer is from the attention on every key, with gradients",
                                   PlanDenseLightningIndexerGradKLLoss);
  command.inputs.insert(
      command.inputs.end(),
      {{"--key", &Loss::k, "Keys of the attention [B,S2,Nkv,D]; TND [T,Nkv,D]"},
       {"--softmax-max", &Loss::softmax_max,
        "Row maximum of the attention, float32 [B,Nkv,S1,N/Nkv], TND [Nkv,T,N/Nkv]"},
       {"--softmax-sum", &Loss::softmax_sum, "Row sum of the attention, same shape"},
       {"--softmax-max-index", &Loss::softmax_max_index,
        "Row maximum of the indexer's scores, float32 [B,1,S1], TND [1,T]"},
       {"--softmax-sum-index", &Loss::softmax_sum_index, "Row sum of the indexer's scores, same shape"}});
  AddSparseCommand(run, std::move(command));
}

}  // namespace fa::tool
