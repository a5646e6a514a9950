// fa run index-score, indexer-loss-value: reads the inputs from files and writes the output to a file.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "commands/progress.h"
#include "commands/run/loaded_tensors.h"
#include "fa/indexer_kl_loss.h"
#include "fa/msa_index_score.h"
#include "files/output_files.h"
#include "flags/context_flags.h"
#include "flags/failure.h"
#include "flags/flag_names.h"
#include "flags/flag_values.h"
#include "flags/sparse_flags.h"

namespace fa::tool {
namespace {

struct IndexScoreFlags {
  SparseFlags sparse;
  std::string query, key, key_scale, block_table, start_loc, score;
  MsaIndexScoreOptions options;
  ContextFlags context;
};

struct LossValueFlags {
  std::string dtype, target, probabilities, loss, weight = "target";
  IndexerKLLossOptions options;
  ContextFlags context;
};

std::vector<int64_t> IntegersOf(const char* flag, const std::string& text) {
  return text.empty() ? std::vector<int64_t>() : ParseIntegers(flag, text);
}

/// Returns the number of blocks of the longest sequence. If lengths are wrong, the library refuses them.
int64_t MostBlocks(const std::vector<int64_t>& lengths, bool sums) {
  int64_t most = 0, before = 0;
  for (const int64_t length : lengths) {
    most =
        std::max(most, (std::clamp<int64_t>(length, 0, int64_t{1} << 60) - before + kMsaBlockSize - 1) / kMsaBlockSize);
    if (sums) before = std::clamp<int64_t>(length, 0, int64_t{1} << 60);
  }
  return most;
}

/// Reads queries or keys, whose uint8 numbers are e4m3.
TensorView LoadNumbers(LoadedTensors& files, const char* flag, const std::string& path) {
  TensorView view = files.Load(flag, path);
  if (view.dtype == DType::kU8) view.dtype = DType::kF8E4M3;
  return view;
}

void RunIndexScore(const IndexScoreFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  MsaIndexScoreOptions options = flags.options;
  options.mask = MaskOf(flags.sparse);
  const std::vector<int64_t> lengths_q = IntegersOf("--actual-seq-qlen", flags.sparse.actual_seq_qlen);
  const std::vector<int64_t> lengths_kv = IntegersOf("--actual-seq-kvlen", flags.sparse.actual_seq_kvlen);
  const std::vector<int64_t> start_loc = IntegersOf("--start-loc", flags.start_loc);
  LoadedTensors files(flags.sparse.dtype);
  MsaIndexScoreArgs args{.q = LoadNumbers(files, "--query", flags.query),
                         .k = LoadNumbers(files, "--key", flags.key),
                         .k_scale = files.Load("--key-scale", flags.key_scale),
                         .block_table = files.Load("--block-table", flags.block_table),
                         .lengths_q = lengths_q,
                         .lengths_kv = lengths_kv,
                         .start_loc = start_loc,
                         .score = {}};
  const int64_t heads = args.q.shape.rank() == 3 ? args.q.shape[1] : 1;
  const int64_t rows = args.q.shape.empty() ? 0 : args.q.shape[0];
  const int64_t blocks = MostBlocks(lengths_kv, args.block_table.data == nullptr);
  const std::vector<int64_t> shape = {heads, rows, blocks};
  if (!npy::BytesOf(shape, npy::ElementType::kF32)) {
    throw UsageError(fmt::format("--actual-seq-kvlen: {}, want keys that exist", flags.sparse.actual_seq_kvlen));
  }
  char planned = 0;  // a plan only asks whether a tensor is given
  args.score = {&planned, DType::kF32, {heads, rows, blocks}, {}};
  auto plan = PlanMsaIndexScore(args, options, context.get());
  ThrowUnlessOk(plan.status(), SparseFlagNames());
  OutputFiles outputs;
  const size_t file = outputs.Add("--score", flags.score);
  Tensor score = NewTensor(DType::kF32, shape);
  args.score = score.MutableView();
  {
    const Progress progress("fa run index-score");
    ThrowUnlessOk(plan->Run(args), SparseFlagNames());
  }
  outputs.Set(file, score.array);
  outputs.Commit();
}

void RunLossValue(const LossValueFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  IndexerKLLossOptions options = flags.options;
  if (flags.weight != "target" && flags.weight != "normalised") {
    throw UsageError(fmt::format("--weight: '{}', want target or normalised", flags.weight));
  }
  options.weight = flags.weight == "target" ? IndexerKLLossWeight::kTarget : IndexerKLLossWeight::kNormalised;
  LoadedTensors files(flags.dtype);
  OutputFiles outputs;
  const size_t file = outputs.Add("--loss", flags.loss);
  Tensor loss = NewTensor(DType::kF32, {1});
  {
    const Progress progress("fa run indexer-loss-value");
    ThrowUnlessOk(IndexerKLLoss({.target = files.Load("--target", flags.target),
                                 .probabilities = files.Load("--probabilities", flags.probabilities),
                                 .loss = loss.MutableView()},
                                options, context.get()));
  }
  outputs.Set(file, loss.array);
  outputs.Commit();
}

}  // namespace

void AddRunIndexScore(CLI::App& run) {
  const auto flags = std::make_shared<IndexScoreFlags>();
  FileFlags add(run, "index-score", "The largest product of each query and head with the keys of each block of 128");
  add.Needed("--query", flags->query, "Queries [T1,N,D] of packed sequences; uint8: e4m3");
  add.Needed("--key", flags->key, "Keys [T2,1,D], or with --block-table pages [blocks,block size,1,D]");
  add.Optional("--key-scale", flags->key_scale, "Scales of keys of int8: float32 [T2], or pages [blocks,block size]");
  add.Optional("--block-table", flags->block_table, "int32 [B,n]: the pages of each sequence's keys");
  CLI::App& command = add.command();
  const auto list = [&command](const char* flag, std::string& to, const char* text) {
    return command.add_option(flag, to, text)->type_name("N,N,...");
  };
  list("--actual-seq-qlen", flags->sparse.actual_seq_qlen, "Inclusive prefix sums of the queries")->required();
  list("--actual-seq-kvlen", flags->sparse.actual_seq_kvlen, "Of the keys; keys in pages: of each sequence")
      ->required();
  list("--start-loc", flags->start_loc, "The block in which each sequence's queries lie; default: each query's own");
  const auto number = [&command](const char* flag, int64_t& to, const char* text) {
    command.add_option(flag, to, text)->type_name("N");
  };
  number("--sparse-mode", flags->sparse.sparse_mode, "3 (default): causal to the last key; 0: all keys");
  number("--init-blocks", flags->options.init_blocks, "First blocks whose score is 1e30; default: 0");
  number("--local-blocks", flags->options.local_blocks, "Blocks up to the query's own whose score is 1e29; default: 0");
  add.Needed("--score", flags->score, "float32 [N,T1,blocks of the longest sequence]");
  add.End(flags->sparse.dtype, flags->context).callback([flags] { RunIndexScore(*flags); });
}

void AddRunIndexerLossValue(CLI::App& run) {
  const auto flags = std::make_shared<LossValueFlags>();
  FileFlags add(run, "indexer-loss-value", "The KL loss of an indexer's probabilities to a given target");
  add.Needed("--target", flags->target, "Target [...,K]; rows may have any sum");
  add.Needed("--probabilities", flags->probabilities, "The indexer's softmax, shape of --target");
  add.command().add_option("--eps", flags->options.eps, "Keeps divisors and logarithms from 0; default: 1e-8");
  add.command()
      .add_option("--weight", flags->weight,
                  "Factor of the logarithms: target (default), or normalised: the target divided by its row's sum")
      ->type_name("target|normalised");
  add.Needed("--loss", flags->loss, "float32, one element");
  add.End(flags->dtype, flags->context).callback([flags] { RunLossValue(*flags); });
}

}  // namespace fa::tool
