// The operator DenseLightningIndexerSoftmaxLse. A call is bound, planned and run. Plan and scores are the same as for
// LightningIndexer. A query token's row of scores is contiguous, even if its keys are cut into parts. So a row is
// summed in one order.

#include "fa/indexer_lse.h"

#include "ops/indexer/bind_indexer_lse.h"
#include "ops/indexer/indexer_forward_plan.h"
#include "ops/indexer/statistics_step.h"

namespace fa {

Result<PlanFor<DenseIndexerLseArgs>> PlanDenseLightningIndexerSoftmaxLse(const DenseIndexerLseArgs& args,
                                                                         const DenseIndexerLseOptions& options,
                                                                         Context* context) {
  return ops::MakePlan<ops::IndexerForwardPlan<ops::BoundIndexerLse, ops::StatisticsStep, DenseIndexerLseArgs>>(
      context, [&] { return ops::BindIndexerLse(args, options); });
}

Status DenseLightningIndexerSoftmaxLse(const DenseIndexerLseArgs& args, const DenseIndexerLseOptions& options,
                                       Context* context) {
  auto plan = PlanDenseLightningIndexerSoftmaxLse(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
