
#include "fa/lightning_indexer.h"
#include "ops/indexer/bind_indexer.h"
#include "ops/indexer/indexer_forward_plan.h"
#include "ops/indexer/selection_step.h"

namespace fa {

Result<PlanFor<LightningIndexerArgs>> PlanLightningIndexer(const LightningIndexerArgs& args,
                                                           const LightningIndexerOptions& options, Context* context) {
  return ops::MakePlan<ops::IndexerForwardPlan<ops::BoundIndexer, ops::SelectionStep, LightningIndexerArgs>>(
      context, [&] { return ops::BindIndexer(args, options); });
}

Status LightningIndexer(const LightningIndexerArgs& args, const LightningIndexerOptions& options, Context* context) {
  auto plan = PlanLightningIndexer(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
