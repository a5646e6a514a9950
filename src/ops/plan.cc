#include "fa/plan.h"

#include <utility>

#include "core/context_impl.h"
#include "ops/plan_impl.h"

namespace fa {

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Status Plan::Run(const AttentionArgs& args, Workspace& workspace) const {
  if (Status status = workspace.Reserve(impl_->workspace_bytes()); !status.ok()) return status;
  return impl_->Run(args, workspace.data());
}

Status Plan::Run(const AttentionArgs& args) const {
  auto workspace = impl_->context().impl().BorrowWorkspace();
  return Run(args, *workspace);
}

size_t Plan::workspace_bytes() const { return impl_->workspace_bytes(); }
PlanInfo Plan::info() const { return impl_->info(); }
std::string Plan::Describe() const { return impl_->Describe(); }

}  // namespace fa
