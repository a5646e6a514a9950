// fa plan sparse-forward, sparse-backward, indexer, indexer-backward, indexer-kl-loss, dense-indexer-lse,
// dense-indexer-kl-loss, index-score: prints the plan as text, as JSON or as a picture, without computing.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cases/sparse_case.h"
#include "commands.h"
#include "commands/plan/plan_output.h"
#include "flags/context_flags.h"
#include "flags/failure.h"

namespace fa::tool {
namespace {

struct SparsePlanFlags {
  SparseCaseFlags sparse;
  PlanContextFlags context;
  PlanOutputFlags output;
};

/// A sparse operator, and the function that plans it.
struct SparsePlanner {
  const char* name;
  const char* text;
  SparseCaseKind kind;
  // Whether the operator works on selected keys. If so, the picture shows these keys in the order of the list.
  bool selects;
  Result<Plan> (*plan)(const SparseCase& sparse, Context* context);
  bool takes_rows = false;  ///< whether keys may be quantised
};

void Run(const SparsePlanner& op, const SparsePlanFlags& flags) {
  const std::unique_ptr<Context> context = MakeContext(flags.context);
  const SparseCase sparse(op.kind, flags.sparse);
  WritePlan(
      flags.output,
      {.title = fmt::format("{} {} {}, mask: {}", op.name, flags.sparse.shape, Name(sparse.dtype), sparse.MaskText()),
       .keys = op.selects ? "selected keys" : "keys",
       .batch = sparse.batch,
       .heads = sparse.index_heads > 0 ? sparse.index_heads : sparse.heads,
       .sq = sparse.s1,
       .sk = op.selects ? std::min(sparse.k, sparse.s2) : sparse.s2},
      [&] {
        Result<Plan> plan = op.plan(sparse, context.get());
        ThrowUnlessOkFromShape(plan.status());
        return std::move(*plan);
      });
}

void AddSparsePlan(CLI::App& app, const SparsePlanner& op) {
  CLI::App* command = app.add_subcommand(op.name, op.text);
  const auto flags = std::make_shared<SparsePlanFlags>();
  AddSparseCaseFlags(*command, op.kind, 4096, flags->sparse);
  if (op.takes_rows) AddRowsFlags(*command, op.kind, flags->sparse);
  AddContextFlags(*command, flags->context);
  AddPlanOutputFlags(*command, flags->output);
  command->callback([op, flags] { Run(op, *flags); });
}

}  // namespace

void AddPlanSparseForward(CLI::App& plan) {
  AddSparsePlan(plan,
                {"sparse-forward", "Plan of sparse attention", SparseCaseKind::kAttention, true,
                 [](const SparseCase& sparse, Context* context) {
                   return AnyPlan(PlanSparseFlashAttention(sparse.ForwardArgs(), sparse.AttentionOptions(), context));
                 },
                 /*takes_rows=*/true});
}

void AddPlanSparseBackward(CLI::App& plan) {
  AddSparsePlan(
      plan, {"sparse-backward", "Plan of the gradients of sparse attention", SparseCaseKind::kAttention, true,
             [](const SparseCase& sparse, Context* context) {
               return AnyPlan(PlanSparseFlashAttentionGrad(sparse.BackwardArgs(), sparse.AttentionOptions(), context));
             }});
}

void AddPlanIndexer(CLI::App& plan) {
  AddSparsePlan(plan, {"indexer", "Plan of the indexer", SparseCaseKind::kIndexer, false,
                       [](const SparseCase& sparse, Context* context) {
                         return AnyPlan(PlanLightningIndexer(sparse.IndexerArgs(), sparse.IndexerOptions(), context));
                       },
                       /*takes_rows=*/true});
}

void AddPlanIndexerBackward(CLI::App& plan) {
  AddSparsePlan(
      plan, {"indexer-backward", "Plan of the indexer's gradients", SparseCaseKind::kIndexer, true,
             [](const SparseCase& sparse, Context* context) {
               return AnyPlan(PlanLightningIndexerGrad(sparse.IndexerGradArgs(), sparse.IndexerGradOptions(), context));
             }});
}

void AddPlanIndexerLoss(CLI::App& plan) {
  AddSparsePlan(
      plan, {"indexer-kl-loss", "Plan of the KL loss with its gradients", SparseCaseKind::kLoss, true,
             [](const SparseCase& sparse, Context* context) {
               return AnyPlan(PlanSparseLightningIndexerGradKLLoss(sparse.LossArgs(), sparse.LossOptions(), context));
             }});
}

void AddPlanDenseIndexerLse(CLI::App& plan) {
  AddSparsePlan(plan,
                {"dense-indexer-lse", "Plan of the softmax statistics of the indexer's scores",
                 SparseCaseKind::kDenseIndexer, false, [](const SparseCase& sparse, Context* context) {
                   return AnyPlan(PlanDenseLightningIndexerSoftmaxLse(sparse.LseArgs(), sparse.LseOptions(), context));
                 }});
}

void AddPlanIndexScore(CLI::App& plan) {
  AddSparsePlan(plan, {"index-score", "Plan of the scores of blocks of 128 keys", SparseCaseKind::kIndexScore, false,
                       [](const SparseCase& sparse, Context* context) {
                         return AnyPlan(PlanMsaIndexScore(sparse.ScoreArgs(), {.mask = sparse.mask}, context));
                       }});
}

void AddPlanDenseIndexerLoss(CLI::App& plan) {
  AddSparsePlan(plan, {"dense-indexer-kl-loss", "Plan of the KL loss on every key with its gradients",
                       SparseCaseKind::kDenseLoss, false, [](const SparseCase& sparse, Context* context) {
                         return AnyPlan(PlanDenseLightningIndexerGradKLLoss(sparse.DenseLossArgs(sparse.LossArgs()),
                                                                            sparse.DenseLossOptions(), context));
                       }});
}

}  // namespace fa::tool
