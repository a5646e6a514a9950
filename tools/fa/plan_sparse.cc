// fa plan sparse-forward, sparse-backward, indexer, indexer-backward, indexer-kl-loss: what would run. Nothing is
// computed.

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "context_flags.h"
#include "failure.h"
#include "plan_json.h"
#include "sparse_case.h"

namespace fa::tool {
namespace {

struct Flags {
  SparseCaseFlags sparse;
  ContextFlags context;
  bool json = false;
};

using Planner = Result<Plan> (*)(const SparseCase& sparse, Context* context);

void Run(SparseCaseKind kind, Planner planner, const Flags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const SparseCase sparse(kind, flags.sparse);
  Result<Plan> plan = planner(sparse, context.get());
  ThrowUnlessOkFromShape(plan.status());
  PrintPlan(*plan, flags.json);
}

void AddSparsePlan(CLI::App& app, const char* name, const char* text, SparseCaseKind kind, Planner planner) {
  CLI::App* command = app.add_subcommand(name, text);
  const auto flags = std::make_shared<Flags>();
  AddSparseCaseFlags(*command, kind, 4096, flags->sparse);
  AddContextFlags(*command, flags->context);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([kind, planner, flags] { Run(kind, planner, *flags); });
}

}  // namespace

void AddPlanSparseForward(CLI::App& plan) {
  AddSparsePlan(plan, "sparse-forward", "Plan of sparse attention", SparseCaseKind::kAttention,
                [](const SparseCase& sparse, Context* context) {
                  return PlanSparseFlashAttention(sparse.ForwardArgs(), sparse.AttentionOptions(), context);
                });
}

void AddPlanSparseBackward(CLI::App& plan) {
  AddSparsePlan(plan, "sparse-backward", "Plan of its gradients", SparseCaseKind::kAttention,
                [](const SparseCase& sparse, Context* context) {
                  return PlanSparseFlashAttentionGrad(sparse.BackwardArgs(), sparse.AttentionOptions(), context);
                });
}

void AddPlanIndexer(CLI::App& plan) {
  AddSparsePlan(plan, "indexer", "Plan of the indexer", SparseCaseKind::kIndexer,
                [](const SparseCase& sparse, Context* context) {
                  return PlanLightningIndexer(sparse.IndexerArgs(), sparse.IndexerOptions(), context);
                });
}

void AddPlanIndexerBackward(CLI::App& plan) {
  AddSparsePlan(plan, "indexer-backward", "Plan of the indexer's gradients", SparseCaseKind::kIndexer,
                [](const SparseCase& sparse, Context* context) {
                  return PlanLightningIndexerGrad(sparse.IndexerGradArgs(), sparse.IndexerOptions(), context);
                });
}

void AddPlanIndexerLoss(CLI::App& plan) {
  AddSparsePlan(plan, "indexer-kl-loss", "Plan of the KL loss with its gradients", SparseCaseKind::kLoss,
                [](const SparseCase& sparse, Context* context) {
                  return PlanSparseLightningIndexerGradKLLoss(sparse.LossArgs(), sparse.LossOptions(), context);
                });
}

}  // namespace fa::tool
