// The operator MsaIndexScore. A call is bound, planned and run. Plan and products are the same as for LightningIndexer.
// A token's row has the maxima of its heads' products per block, in place of a score per key.
#include "fa/msa_index_score.h"

#include "ops/indexer/bind_block_score.h"
#include "ops/indexer/block_score_step.h"
#include "ops/indexer/indexer_forward_plan.h"

namespace fa {

Result<PlanFor<MsaIndexScoreArgs>> PlanMsaIndexScore(const MsaIndexScoreArgs& args, const MsaIndexScoreOptions& options,
                                                     Context* context) {
  return ops::MakePlan<ops::IndexerForwardPlan<ops::BoundBlockScore, ops::BlockScoreStep, MsaIndexScoreArgs>>(
      context, [&] { return ops::BindBlockScore(args, options); });
}

Status MsaIndexScore(const MsaIndexScoreArgs& args, const MsaIndexScoreOptions& options, Context* context) {
  auto plan = PlanMsaIndexScore(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
