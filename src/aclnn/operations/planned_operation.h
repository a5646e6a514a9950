#ifndef FA_ACLNN_PLANNED_OPERATION_H_
#define FA_ACLNN_PLANNED_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/operations/attention_call.h"
#include "aclnn/operations/names.h"
#include "aclnn/runtime/executor.h"
#include "aclnn/runtime/report.h"
#include "fa/plan.h"

namespace fa::aclnn {

/// An operator call that a plan of the library runs, in the program's workspace.
template <typename Args>
class PlannedOperation : public Operation {
 protected:
  /// @param own  the names of parameters that only this function has
  PlannedOperation(Operands operands, Names names, std::vector<Rename> own = {})
      : Operation(std::move(operands)), names_(names), own_(std::move(own)) {}

  /// Keeps the plan and reserves its memory in the workspace. If planning failed, returns the error with the operator's
  /// parameter names.
  [[nodiscard]] Status Keep(Result<PlanFor<Args>> plan) {
    if (!plan.ok()) return Renamed(plan.status(), names_, own_);
    FA_RETURN_IF_ERROR(Reserve(plan->workspace_bytes()));
    plan_ = std::move(*plan);
    return Status::Ok();
  }
  /// Reserves memory in the workspace for a plan that is made later. If `bytes` is an error, returns it with the
  /// operator's parameter names.
  [[nodiscard]] Status Reserve(const Result<size_t>& bytes) {
    if (!bytes.ok()) return Renamed(bytes.status(), names_, own_);
    plan_bytes_ = *bytes;
    plan_at_ = operands_.Book(plan_bytes_);
    return Status::Ok();
  }
  /// Returns whether a plan has been kept.
  [[nodiscard]] bool planned() const { return plan_.has_value(); }
  [[nodiscard]] Status RunPlan(const Args& args, const CallMemory& memory) const {
    const Status status = plan_->Run(args, {memory.workspace + plan_at_, plan_->workspace_bytes()});
    return status.ok() ? status : Renamed(status, names_, own_);
  }
  /// Runs another plan of the same call, which the first phase could not make yet. The run uses the reserved memory. If
  /// the reserved memory is too little, the run uses memory of the library.
  [[nodiscard]] Status RunOtherPlan(const Result<PlanFor<Args>>& plan, const Args& args,
                                    const CallMemory& memory) const {
    if (!plan.ok()) return Renamed(plan.status(), names_, own_);
    const size_t bytes = plan->workspace_bytes();
    const Status status =
        bytes <= plan_bytes_ ? plan->Run(args, {memory.workspace + plan_at_, bytes}) : plan->Run(args);
    return status.ok() ? status : Renamed(status, names_, own_);
  }

 private:
  Names names_;
  std::vector<Rename> own_;
  size_t plan_at_ = 0, plan_bytes_ = 0;
  std::optional<PlanFor<Args>> plan_;
};

/// Ends the first phase of a PlannedOperation: calls Prepare(), then hands the executor to the program.
template <typename Planned>
[[nodiscard]] aclnnStatus Release(std::shared_ptr<Planned> operation, uint64_t* workspace_size,
                                  aclOpExecutor** executor) {
  if (Status status = operation->Prepare(); !status.ok()) return Report(status);
  return ReleaseExecutor(std::move(operation), workspace_size, executor);
}

}  // namespace fa::aclnn

#endif  // FA_ACLNN_PLANNED_OPERATION_H_
