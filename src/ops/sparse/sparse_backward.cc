#include "fa/sparse_flash_attention_grad.h"
#include "ops/plan/plan_machine.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/sparse/sparse_backward_plan.h"

namespace fa {

Result<PlanFor<SparseAttentionGradArgs>> PlanSparseFlashAttentionGrad(const SparseAttentionGradArgs& args,
                                                                      const SparseAttentionOptions& options,
                                                                      Context* context) {
  return ops::MakePlan<SparseBackwardPlan<SparseAttentionGradArgs, ops::BoundSparseGrad>>(
      context, [&] { return ops::BindSparseGrad(args, options); });
}

Status SparseFlashAttentionGrad(const SparseAttentionGradArgs& args, const SparseAttentionOptions& options,
                                Context* context) {
  auto plan = PlanSparseFlashAttentionGrad(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
