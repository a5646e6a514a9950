#include "fa/shared_kv_attention.h"
#include "fa/shared_kv_attention_grad.h"
#include "ops/plan/plan_machine.h"
#include "ops/sparse/bind_shared_kv.h"
#include "ops/sparse/sparse_backward_plan.h"
#include "ops/sparse/sparse_forward_plan.h"

namespace fa {

Result<PlanFor<SharedKvArgs>> PlanSharedKvAttention(const SharedKvArgs& args, const SharedKvOptions& options,
                                                    Context* context) {
  return ops::MakePlan<SparseForwardPlan<SharedKvArgs, ops::BoundSharedKv>>(
      context, [&] { return ops::BindSharedKv(args, options); });
}

Status SharedKvAttention(const SharedKvArgs& args, const SharedKvOptions& options, Context* context) {
  auto plan = PlanSharedKvAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

Result<PlanFor<SharedKvGradArgs>> PlanSharedKvAttentionGrad(const SharedKvGradArgs& args,
                                                            const SharedKvOptions& options, Context* context) {
  return ops::MakePlan<SparseBackwardPlan<SharedKvGradArgs, ops::BoundSharedKvGrad>>(
      context, [&] { return ops::BindSharedKvGrad(args, options); });
}

Status SharedKvAttentionGrad(const SharedKvGradArgs& args, const SharedKvOptions& options, Context* context) {
  auto plan = PlanSharedKvAttentionGrad(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
