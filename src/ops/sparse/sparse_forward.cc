#include "fa/sparse_flash_attention.h"
#include "ops/plan/plan_machine.h"
#include "ops/sparse/bind_sparse.h"
#include "ops/sparse/sparse_forward_plan.h"

namespace fa {

Result<PlanFor<SparseAttentionArgs>> PlanSparseFlashAttention(const SparseAttentionArgs& args,
                                                              const SparseAttentionOptions& options, Context* context) {
  return ops::MakePlan<SparseForwardPlan<SparseAttentionArgs, ops::BoundSparse>>(
      context, [&] { return ops::BindSparse(args, options); });
}

Status SparseFlashAttention(const SparseAttentionArgs& args, const SparseAttentionOptions& options, Context* context) {
  auto plan = PlanSparseFlashAttention(args, options, context);
  return plan.ok() ? plan->Run(args) : plan.status();
}

}  // namespace fa
