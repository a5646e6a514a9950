// fa bench sparse-forward, sparse-backward, indexer, indexer-backward, index-score, indexer-kl-loss,
// dense-indexer-kl-loss: times these operators.

#include <memory>

#include "bench/bench_report.h"
#include "cases/sparse_case.h"
#include "cases/sparse_data.h"
#include "commands.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct SparseBenchFlags {
  SparseCaseFlags sparse;
  MeasureFlags measure;
};

struct SparseBench {
  const char* name;
  const char* text;
  SparseCaseKind kind;
  int64_t rows;  ///< default number of query tokens, for about 0.1 s on two cores
  void (*run)(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context);
  bool takes_pages = false;  ///< whether keys may lie in pages, and may be quantised
};

/// The parts of a benchmark that differ from operator to operator.
template <typename Args>
struct OperatorCall {
  const Args& args;
  double bytes = 0;
  const char* bytes_of = "";
  std::function<void()> check;
};

template <typename Args, typename Options>
void MeasureSparse(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context,
                   Result<PlanFor<Args>> (*make_plan)(const Args&, const Options&, Context*), const Options& options,
                   const OperatorCall<Args>& op) {
  auto plan = make_plan(op.args, options, &context);
  ThrowUnlessOkFromShape(plan.status());
  Workspace workspace;
  MeasureAndReport(
      {.op = bench.name,
       .flags = flags.measure,
       .subject = {.shape = sparse.shape, .dtype = sparse.dtype, .layout = sparse.layout, .mask = sparse.MaskText()},
       .context = context,
       .info = plan->info(),
       .bytes = op.bytes,
       .bytes_of = op.bytes_of,
       .block_size = sparse.block_size,
       .call = [&] { ThrowUnlessOk(plan->Run(op.args, workspace)); },
       .check = op.check});
}

void RunForward(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  SparseAttentionData data(sparse);
  const SparseAttentionArgs args = data.ForwardArgs();
  MeasureSparse<SparseAttentionArgs, SparseAttentionOptions>(
      bench, flags, sparse, context, PlanSparseFlashAttention, sparse.AttentionOptions(),
      {args, data.gathered_bytes(), "gathered keys and values", [&] { data.CheckForward(); }});
}

void RunBackward(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  SparseAttentionData data(sparse);
  const SparseAttentionGradArgs args = data.BackwardArgs(context);
  MeasureSparse<SparseAttentionGradArgs, SparseAttentionOptions>(
      bench, flags, sparse, context, PlanSparseFlashAttentionGrad, sparse.AttentionOptions(),
      {args, data.gathered_bytes(), "gathered keys and values", [&] { data.CheckBackward(); }});
}

double KeyBytes(const SparseCase& sparse) {
  const auto element = static_cast<double>(fa::SizeOf(sparse.rows.value_or(sparse.dtype)));
  return static_cast<double>(sparse.batch * sparse.s2 * sparse.index_d) * element;
}

void RunIndexer(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  IndexerData data(sparse);
  const LightningIndexerArgs args = data.ForwardArgs();
  MeasureSparse<LightningIndexerArgs, LightningIndexerOptions>(
      bench, flags, sparse, context, PlanLightningIndexer, sparse.IndexerOptions(),
      {args, KeyBytes(sparse), "keys", [&] { data.CheckForward(); }});
}

void RunIndexerBackward(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse,
                        Context& context) {
  IndexerData data(sparse);
  const LightningIndexerGradArgs args = data.BackwardArgs();
  MeasureSparse<LightningIndexerGradArgs, LightningIndexerGradOptions>(
      bench, flags, sparse, context, PlanLightningIndexerGrad, sparse.IndexerGradOptions(),
      {args, KeyBytes(sparse), "keys", [&] { data.CheckBackward(); }});
}

void RunScore(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  IndexerData data(sparse);
  const MsaIndexScoreArgs args = data.ScoreArgs();
  MeasureSparse<MsaIndexScoreArgs, MsaIndexScoreOptions>(bench, flags, sparse, context, PlanMsaIndexScore,
                                                         {.mask = sparse.mask},
                                                         {args, KeyBytes(sparse), "keys", [&] { data.CheckScores(); }});
}

/// The data that both the sparse and the dense loss need.
struct LossData {
  LossData(const SparseCase& sparse, Context& context) : attention(sparse), indexer(sparse), args(sparse.LossArgs()) {
    attention.SetLossArgs(context, args);
    indexer.SetLossArgs(args);
  }

  SparseAttentionData attention;
  IndexerData indexer;
  SparseIndexerLossArgs args;
};

void RunLoss(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  const LossData data(sparse, context);
  MeasureSparse<SparseIndexerLossArgs, SparseIndexerLossOptions>(
      bench, flags, sparse, context, PlanSparseLightningIndexerGradKLLoss, sparse.LossOptions(),
      {data.args, data.attention.gathered_bytes(), "gathered keys", [&] { data.indexer.CheckLoss(data.attention); }});
}

void RunDenseLoss(const SparseBench& bench, const SparseBenchFlags& flags, const SparseCase& sparse, Context& context) {
  LossData data(sparse, context);
  DenseIndexerLossArgs args = sparse.DenseLossArgs(data.args);
  data.indexer.SetStatistics(context, args);
  MeasureSparse<DenseIndexerLossArgs, DenseIndexerLossOptions>(
      bench, flags, sparse, context, PlanDenseLightningIndexerGradKLLoss, sparse.DenseLossOptions(),
      {args, KeyBytes(sparse), "keys of the indexer", [&] { data.indexer.CheckLoss(data.attention); }});
}

void AddSparseBench(CLI::App& app, const SparseBench& bench) {
  CLI::App* command = app.add_subcommand(bench.name, bench.text);
  const auto flags = std::make_shared<SparseBenchFlags>();
  AddSparseCaseFlags(*command, bench.kind, bench.rows, flags->sparse);
  if (bench.takes_pages) {
    AddPagesFlag(*command, flags->sparse);
    AddRowsFlags(*command, bench.kind, flags->sparse);
  }
  AddMeasureFlags(*command, flags->measure);
  command->callback([bench, flags] {
    const std::unique_ptr<Context> context = MakeContext(flags->measure.context);
    const SparseCase sparse(bench.kind, flags->sparse);
    bench.run(bench, *flags, sparse, *context);
  });
}

}  // namespace

void AddBenchSparseForward(CLI::App& bench) {
  AddSparseBench(bench, {"sparse-forward", "Time sparse attention; some rows are checked first",
                         SparseCaseKind::kAttention, 64, RunForward, /*takes_pages=*/true});
}

void AddBenchSparseBackward(CLI::App& bench) {
  AddSparseBench(bench, {"sparse-backward",
                         "Time the gradients of sparse attention, without the forward; some rows are checked first",
                         SparseCaseKind::kAttention, 64, RunBackward});
}

void AddBenchIndexer(CLI::App& bench) {
  AddSparseBench(bench, {"indexer", "Time the indexer: scores and exact top-k; some lists are checked first",
                         SparseCaseKind::kIndexer, 256, RunIndexer, /*takes_pages=*/true});
}

void AddBenchIndexerBackward(CLI::App& bench) {
  AddSparseBench(bench, {"indexer-backward", "Time the indexer's gradients; some rows are checked first",
                         SparseCaseKind::kIndexer, 256, RunIndexerBackward});
}

void AddBenchIndexScore(CLI::App& bench) {
  AddSparseBench(bench, {"index-score", "Time the scores of blocks of 128 keys; some rows are checked first",
                         SparseCaseKind::kIndexScore, 256, RunScore});
}

void AddBenchIndexerLoss(CLI::App& bench) {
  AddSparseBench(bench, {"indexer-kl-loss", "Time the KL loss with its gradients; some rows are checked first",
                         SparseCaseKind::kLoss, 64, RunLoss});
}

void AddBenchDenseIndexerLoss(CLI::App& bench) {
  AddSparseBench(
      bench, {"dense-indexer-kl-loss", "Time the KL loss on every key with its gradients; some rows are checked first",
              SparseCaseKind::kDenseLoss, 16, RunDenseLoss});
}

}  // namespace fa::tool
