// The backward over ranks.

#include <memory>
#include <utility>

#include "fa/ranked_attention.h"

namespace fa {

Result<PlanFor<AttentionGradArgs>> PlanFlashAttentionGrad(const AttentionGradArgs& /*args*/,
                                                          const AttentionOptions& /*options*/,
                                                          const SequenceShards& /*shards*/,
                                                          std::shared_ptr<Transport> /*transport*/,
                                                          Context* /*context*/) {
  return Status::Unsupported("FlashAttentionGrad over ranks is not there yet");
}

Status FlashAttentionGrad(const AttentionGradArgs& args, const AttentionOptions& options, const SequenceShards& shards,
                          std::shared_ptr<Transport> transport, Context* context) {
  auto plan = PlanFlashAttentionGrad(args, options, shards, std::move(transport), context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
